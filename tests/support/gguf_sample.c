#include "support/gguf_sample.h"

const float gguf_sample_numbers[64] = {1, 2, 3};

void gguf_sample_floats(struct gguf_writer *writer, const char *name, int64_t n) {
    gguf_writer_tensor(writer, name, DTYPE_F32, 1, &n, gguf_sample_numbers,
                       (size_t)n * sizeof(float));
}

void gguf_sample(struct gguf_writer *writer) {
    static const int8_t i8 = -3;
    static const int16_t i16 = -300;
    static const int32_t i32 = -70000;
    static const int64_t i64 = -5000000000;
    static const uint8_t u8 = 200;
    static const uint16_t u16 = 60000;
    static const uint64_t u64 = UINT64_MAX;
    static const double f64 = 0.25;
    static const char *const words[] = {"one", "", "three"};
    static const uint16_t halves[] = {1, 2, 3};
    gguf_writer_value(writer, "i8", GGUF_INT8, &i8, sizeof i8);
    gguf_writer_value(writer, "i16", GGUF_INT16, &i16, sizeof i16);
    gguf_writer_value(writer, "i32", GGUF_INT32, &i32, sizeof i32);
    gguf_writer_value(writer, "i64", GGUF_INT64, &i64, sizeof i64);
    gguf_writer_value(writer, "u8", GGUF_UINT8, &u8, sizeof u8);
    gguf_writer_value(writer, "u16", GGUF_UINT16, &u16, sizeof u16);
    gguf_writer_u32(writer, "u32", 4000000000u);
    gguf_writer_value(writer, "u64", GGUF_UINT64, &u64, sizeof u64);
    gguf_writer_f32(writer, "f32", 1.5f);
    gguf_writer_value(writer, "f64", GGUF_FLOAT64, &f64, sizeof f64);
    gguf_writer_bool(writer, "yes", true);
    gguf_writer_string(writer, "text", "hello");
    gguf_writer_strings(writer, "words", words, NULL, 3);
    gguf_writer_array(writer, "halves", GGUF_UINT16, 3, halves, sizeof halves);
    gguf_writer_array(writer, "nothing", GGUF_UINT16, 0, NULL, 0);
    gguf_sample_floats(writer, "a", 5);
    gguf_writer_tensor(writer, "b", DTYPE_F32, 2, (int64_t[]){3, 2}, gguf_sample_numbers, 24);
}

uint32_t gguf_sample_crc32(const uint8_t *data, size_t n) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}
