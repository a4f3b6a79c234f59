#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/files/model_file.h"
#include "engine/memory/device.h"
#include "engine/memory/memory.h"
#include "engine/models/model.h"
#include "engine/quantise/quantise.h"

#define SHOWN_ELEMENTS 4 /* shown elements of an array */
#define SHOWN_BYTES 60   /* shown bytes of a string */

/* ---- key-values ----------------------------------------------------------------------------- */

/* Prints one character, or an escape for one byte. Returns the number of bytes it covers. */
static size_t print_character(FILE *out, const char *text, size_t length) {
    size_t n = printable_prefix(text, length);
    if (*text == '"' || *text == '\\') fputc('\\', out);
    if (n > 0) {
        fwrite(text, 1, n, out);
        return n;
    }
    if (*text == '\n') {
        fputs("\\n", out);
    } else {
        fprintf(out, "\\x%02x", (unsigned char)*text);
    }
    return 1;
}

/* Prints any string on one line, shortened to about SHOWN_BYTES. */
static void print_text(FILE *out, const char *text, size_t length) {
    size_t shown = 0;
    fputc('"', out);
    while (shown < length && shown < SHOWN_BYTES)
        shown += print_character(out, text + shown, length - shown);
    fputc('"', out);
    if (shown < length) fprintf(out, "... (%zu bytes)", length);
}

/* Prints the element at *at and advances *at. */
static void print_element(FILE *out, enum gguf_type type, const uint8_t **at) {
    if (type == GGUF_STRING) {
        size_t length;
        const char *text = gguf_next_string(at, &length);
        print_text(out, text, length);
        return;
    }
    if (type == GGUF_BOOL) {
        fputs(**at ? "true" : "false", out);
    } else if (gguf_is_float(type)) {
        fprintf(out, "%.9g", gguf_number_at(type, *at));
    } else {
        fprintf(out, "%" PRId64, gguf_integer_at(type, *at));
    }
    *at += gguf_type_bytes(type);
}

static void print_array(FILE *out, const struct gguf_value *value) {
    const uint8_t *at = value->data;
    uint64_t shown = value->element == GGUF_ARRAY ? 0 : value->count;
    if (shown > SHOWN_ELEMENTS) shown = SHOWN_ELEMENTS;
    fputc('[', out);
    for (uint64_t i = 0; i < shown; i++) {
        if (i) fputs(", ", out);
        print_element(out, value->element, &at);
    }
    if (shown < value->count) fputs(shown ? ", ..." : "...", out);
    fputc(']', out);
}

static void print_value(FILE *out, const struct gguf_value *value) {
    fprintf(out, "  %.*s = ", (int)value->key_length, value->key);
    const uint8_t *at = value->data;
    if (value->type == GGUF_ARRAY) {
        print_array(out, value);
        fprintf(out, "  (%" PRIu64 " x %s)", value->count, gguf_type_name(value->element));
    } else {
        print_element(out, value->type, &at);
        fprintf(out, "  (%s)", gguf_type_name(value->type));
    }
    fputc('\n', out);
}

/* ---- tensors -------------------------------------------------------------------------------- */

static void print_tensors(FILE *out, const struct weights *weights) {
    struct buf shape = {0};
    int width = 32;
    fprintf(out, "\nTensors: %d\n", weights->n);
    for (int i = 0; i < weights->n; i++)
        width = max_int(width, (int)strlen(weights->tensor[i].name));
    for (int i = 0; i < weights->n; i++) {
        const struct weight *weight = &weights->tensor[i];
        buf_clear(&shape);
        weight_shape_text(&shape, weight->n_dims, weight->dim);
        fprintf(out, "  %-*s %-5s %-16s %12zu bytes\n", width, weight->name,
                dtype_name((int)weight->type), shape.data, weight->bytes);
    }
    buf_free(&shape);
}

static void print_totals(FILE *out, const struct weights *weights) {
    fprintf(out, "\nTensors by type: %d in all\n", weights->n);
    for (int type = 0; type <= (int)DTYPE_INT4H; type++) {
        int64_t elements = 0, bytes = 0;
        int n = 0;
        for (int i = 0; i < weights->n; i++) {
            const struct weight *weight = &weights->tensor[i];
            if ((int)weight->type != type) continue;
            elements += weight->n_elements;
            bytes += (int64_t)weight->bytes;
            n++;
        }
        if (n == 0) continue;
        fprintf(out, "  %-5s %6d tensors %14" PRId64 " elements %14" PRId64 " bytes\n",
                dtype_name(type), n, elements, bytes);
    }
}

/* ---- model and tokenizer -------------------------------------------------------------------- */

/* Describes factors of positions, one per pair of numbers of a head. Llama 3.1 slows down slowly
 * turning pairs; Gemma 4 stops most of them, which no factor of a stretch expresses. */
static void print_factors(FILE *out, const float *factors, int n, const char *where) {
    assert(factors && n > 0);
    const float still = 1e20f;
    float least = still, most = 0;
    int n_turning = 0;
    for (int i = 0; i < n; i++) {
        if (!(factors[i] < still)) continue;
        least = fminf(least, factors[i]);
        most = fmaxf(most, factors[i]);
        n_turning++;
    }
    if (n_turning < n) fprintf(out, " (%d rotate)", 2 * n_turning);
    if (n_turning > 0 && (least != 1 || most != 1))
        fprintf(out, ", stretched (%g to %g times: %s)", (double)least, (double)most, where);
}

/* Prints the factors of a tensor in the file, or those that follow from its config. */
static enum status print_own_factors(FILE *out, const struct model_config *info,
                                     const struct weights *weights, struct err *err) {
    const char *name = role_info(ROLE_ROPE_FACTORS)->gguf;
    const struct weight *weight = NULL;
    int n = info->rope.D_rope / 2;
    bool is_in_file = config_has(info, ROLE_ROPE_FACTORS);
    if (!is_in_file && info->rope.stretch.kind != ROPE_PART) return STATUS_OK;
    enum status status = is_in_file ? weights_vector(weights, name, n, &weight, err) : STATUS_OK;
    if (status) return status;
    float *factors = mem_alloc((size_t)n * sizeof *factors);
    if (weight)
        dequantise(weight->type, weight->data, factors, (size_t)n);
    else
        rope_factors(factors, &info->rope);
    print_factors(out, factors, n, weight ? name : "proportional");
    mem_free(factors);
    return STATUS_OK;
}

static enum status print_positions(FILE *out, const struct model_config *info,
                                   const struct weights *weights, struct err *err) {
    static const char *const stretched[] = {[ROPE_UNSCALED] = "",
                                            [ROPE_LINEAR] = ", stretched (linear)",
                                            [ROPE_LLAMA3] = ", stretched (llama3)",
                                            [ROPE_YARN] = ", stretched (yarn)",
                                            [ROPE_DYNAMIC] = ", stretched (dynamic)",
                                            [ROPE_LONG] = ", stretched (longrope)",
                                            [ROPE_PART] = ""};
    enum status status = STATUS_OK;
    if (info->rope.is_used) {
        fprintf(out, "  rotary positions, base %g over %d dimensions%s", (double)info->rope.base,
                info->rope.D_rope, stretched[info->rope.stretch.kind]);
        status = print_own_factors(out, info, weights, err);
    } else {
        bool is_learned = config_has(info, ROLE_POSITION_EMBEDDING);
        const char *other = info->has_slopes ? "  slopes of heads for positions" : "  no positions";
        fputs(is_learned ? "  learned positions" : other, out);
    }
    fprintf(out, "; norm epsilon %g\n", (double)info->norm_epsilon);
    return status;
}

/* Prints which layers guess ahead. */
static void print_ahead(FILE *out, const struct model_config *info) {
    if (info->eagle.is_used)
        fprintf(out,
                "  an EAGLE-3 head of %d tokens guesses beyond the next one, for drafts; it reads "
                "the stream before layers %d, %d and %d\n",
                info->eagle.V, info->eagle.tap[0], info->eagle.tap[1], info->eagle.tap[2]);
    else if (info->n_ahead > 0)
        fprintf(out, "  layer %d guesses tokens beyond the next one (nextn), for drafts\n",
                info->L - 1);
    for (int i = 0; i < info->n_unread_layers; i++)
        fprintf(out, "  layer %d guesses tokens beyond the next one (nextn), and is not used\n",
                info->L + i);
}

static void print_model(FILE *out, const struct model_config *info) {
    fprintf(out,
            "\nModel: %s\n"
            "  architecture %s, mostly %s, %" PRId64 " parameters\n"
            "  %d layers, %d wide, MLP of %d, %d heads on %d key-value heads of %d\n"
            "  vocabulary %d, context %d tokens\n",
            info->name, info->architecture, info->quantisation, info->n_parameters, info->L,
            info->K, info->F, info->H, info->G, info->D, info->V, info->context_length);
    if (info->latent.is_used)
        fprintf(
            out,
            "  latent attention: the cache has a row of %d + %d numbers per token and layer, and "
            "values are the first %d of them\n",
            info->latent.rank, info->latent.D_rope, info->latent.rank);
    const struct expert_config *e = &info->experts;
    if (e->is_used)
        fprintf(out,
                "  %d experts in %d layers; a token uses %d%s%s; a step of one token reads %.1f "
                "MiB of the layers\n",
                e->E, info->L - config_dense_layers(info), e->n_used,
                e->F_shared ? " and a shared one" : "",
                e->normalises ? ", with normalised weights" : "", mib(info->layer_bytes));
    if (info->C > 0 && info->state.kind == STATE_SPACE)
        fprintf(out,
                "  %d layers are state spaces after convolutions over %d tokens, without keys and "
                "values: %d heads of %d, with %d groups of states of %d\n",
                config_recurrent_layers(info), info->taps, info->state.Hv, info->state.dv,
                info->state.Hk, info->state.dk);
    else if (info->C > 0 && info->state.kind == STATE_DELTA)
        fprintf(
            out,
            "  %d layers are gated delta rules%s after convolutions over %d tokens, without keys "
            "and values: %d value heads of %d over %d key heads of %d\n",
            config_recurrent_layers(info),
            info->state.by_channel ? " with a decay per channel" : "", info->taps, info->state.Hv,
            info->state.dv, info->state.Hk, info->state.dk);
    else if (info->C > 0)
        fprintf(out, "  %d layers are short convolutions over %d tokens, without keys and values\n",
                config_recurrent_layers(info), info->taps);
    print_ahead(out, info);
}

static int count_type(const struct tokenizer_spec *spec, enum token_type type) {
    int n = 0;
    if (!spec->type) return type == TOKEN_NORMAL ? spec->n_tokens : 0;
    for (int id = 0; id < spec->n_tokens; id++) n += spec->type[id] == (int32_t)type;
    return n;
}

static void print_id(FILE *out, const char *what, const struct tokenizer_spec *spec, int32_t id) {
    if (id < 0) return;
    fprintf(out, "  %s %" PRId32 " ", what, id);
    print_text(out, spec->token[id], spec->token_length[id]);
    fputc('\n', out);
}

static void print_spec(FILE *out, const struct tokenizer_spec *spec) {
    static const char *const kinds[] = {
        [TOKENIZER_BYTE_BPE] = "byte-level BPE", [TOKENIZER_SENTENCEPIECE] = "SentencePiece",
        [TOKENIZER_CHARACTER_BPE] = "BPE",       [TOKENIZER_RANK_BPE] = "BPE by rank",
        [TOKENIZER_UNIGRAM] = "Unigram",         [TOKENIZER_WORDPIECE] = "WordPiece",
    };
    fprintf(out, "\nTokenizer: %s", kinds[spec->kind]);
    if (spec->pre) {
        fputs(", pattern ", out);
        print_text(out, spec->pre, strlen(spec->pre));
    }
    fprintf(out, "\n  %d tokens, %d merges\n", spec->n_tokens, spec->n_merges);
    fprintf(out, "  %d normal, %d control, %d user-defined, %d byte, %d unknown, %d unused\n",
            count_type(spec, TOKEN_NORMAL), count_type(spec, TOKEN_CONTROL),
            count_type(spec, TOKEN_USER_DEFINED), count_type(spec, TOKEN_BYTE),
            count_type(spec, TOKEN_UNKNOWN), count_type(spec, TOKEN_UNUSED));
    print_id(out, "bos", spec, spec->bos);
    print_id(out, "eos", spec, spec->eos);
    print_id(out, "unknown", spec, spec->unknown);
    fprintf(out, "  adds bos: %s, adds eos: %s\n", spec->add_bos ? "yes" : "no",
            spec->add_eos ? "yes" : "no");
}

static void print_templates(FILE *out, const struct folder_templates *templates) {
    if (templates->text)
        fprintf(out, "  chat template of %zu bytes\n", templates->length);
    else
        fputs("  no chat template\n", out);
    if (templates->tools_text)
        fprintf(out, "  chat template for tools of %zu bytes\n", templates->tools_length);
}

static enum status print_tokenizer(FILE *out, const struct model_file *file, struct err *err) {
    int32_t ids[MAX_END_IDS];
    int n = 0;
    struct tokenizer_spec spec;
    struct folder_templates templates;
    enum status status = tokenizer_spec_read(&spec, file, err);
    if (status != STATUS_OK) return status;
    print_spec(out, &spec);
    status = chat_templates_read(&templates, file, NULL, err);
    if (status == STATUS_OK) status = end_ids_read(ids, &n, file, &spec, &templates, err);
    for (int i = 0; i < n && status == STATUS_OK; i++)
        print_id(out, "ends a generation:", &spec, ids[i]);
    tokenizer_spec_free(&spec);
    if (status == STATUS_OK) print_templates(out, &templates);
    folder_templates_free(&templates);
    return status;
}

/* ---- memory --------------------------------------------------------------------------------- */

static void print_bytes(FILE *out, const char *what, int64_t bytes, const char *note) {
    fprintf(out, "  %-16s %14" PRId64 " bytes %10.1f MiB%s\n", what, bytes, mib(bytes), note);
}

static void print_memory(FILE *out, const struct engine_memory *memory,
                         const struct machine_memory *machine) {
    int64_t slots = (int64_t)memory->n_blocks * memory->block_size;
    fputs("\nMemory when serving\n", out);
    bool gpu = memory->device.total > 0;
    print_bytes(out, "weights", memory->weights, " (estimate)");
    print_bytes(out, "KV cache", memory->kv_cache, gpu ? " (estimate)" : "");
    if (memory->n_states > 0)
        print_bytes(out, "states", memory->n_states * memory->state_bytes, "");
    print_bytes(out, "scratch", memory->scratch, " (estimate)");
    if (gpu) {
        char share[64];
        snprintf(share, sizeof share, ", share to use: %.2f", memory->share);
        print_bytes(out, "sampling", memory->sampling, " (estimate)");
        print_bytes(out, "steps, attention", memory->steps, " (estimate)");
        print_bytes(out, "kept free", memory->kept, "");
        print_bytes(out, "the GPU's", (int64_t)memory->device.total, share);
    }
    print_bytes(out, "together",
                memory->weights + memory->kv_cache + memory->scratch + memory->sampling +
                    memory->steps + memory->kept + memory->n_states * memory->state_bytes,
                "");
    print_bytes(out, "free now", gpu ? (int64_t)memory->device.free : machine->available, "");
    if (memory->swap > 0) print_bytes(out, "swap space", memory->swap, " of the host");
    fprintf(out, "  KV cache: %d blocks of %d slots, %" PRId64 " bytes a token\n", memory->n_blocks,
            memory->block_size, memory->kv_bytes_per_token);
    if (memory->n_window_blocks > 0)
        fprintf(out,
                "  layers with windows: %d separate blocks, %" PRId64
                " bytes a token, of the last %d tokens of a sequence\n",
                memory->n_window_blocks, memory->window_bytes_per_token, memory->window);
    if (memory->n_states > 0)
        fprintf(out,
                "  recurrent layers: %d states of %" PRId64
                " bytes: %d of cached prefixes, every %d "
                "tokens; %d for drafts\n",
                memory->n_states, memory->state_bytes, memory->n_checkpoints,
                memory->checkpoint_every, memory->n_draft_states);
    fprintf(out, "  holds %" PRId64 " tokens: %" PRId64 " sequences of %d tokens\n", slots,
            (int64_t)engine_memory_sequences(memory), memory->max_model_len);
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Do the files contain weights? A config.json alone does not. */
static bool has_files(const struct model_file *file) {
    return file->gguf || file->hf->n_shards > 0;
}

/* Prints what kind of files these are, before the model is known. */
static void print_kind(FILE *out, const struct model_file *file) {
    const struct gguf *gguf = file->gguf;
    const struct hf_config *hf = file->hf;
    if (gguf) {
        fprintf(out, "%s: GGUF version %" PRIu32 ", %zu bytes, alignment %" PRIu32 "\n", file->path,
                gguf->version, gguf->size, gguf->alignment);
    } else if (hf->n_shards > 0) {
        fprintf(out, "%s: safetensors, %d file%s, %" PRId64 " bytes\n", file->path, hf->n_shards,
                hf->n_shards == 1 ? "" : "s", hf->file_bytes);
    }
}

/* Prints the program of rank 0, and that of the other ranks, which lack the embedding and the
 * head. */
static enum status print_programs(FILE *out, const struct model_config *model,
                                  const struct weights *weights, int ranks, struct err *err) {
    ranks = max_int(ranks, 1);
    enum status status = shard_check(model, weights, ranks, err);
    for (int rank = 0; rank < min_int(ranks, 2) && !status; rank++)
        model_print_outline(model, (struct shard){rank, ranks}, out);
    return status;
}

/* Prints the model, its tokenizer, the memory for serving it, and its program, as far as the file
 * is accepted. */
static enum status inspect_summary(struct model_file *file, const struct engine_config *config,
                                   struct inspected shown, FILE *out, struct err *err) {
    struct model_config model;
    struct machine_memory machine;
    struct engine_memory memory;
    struct engine_config chosen = *config;
    char why[160];
    enum status status = model_config_read(&model, file, err);
    if (status != STATUS_OK) return status;
    if (!has_files(file))
        fprintf(out, "%s: config.json, %" PRId64 " bytes of random weights\n", file->path,
                model.file_bytes);
    print_model(out, &model);
    status = print_positions(out, &model, model_file_weights(file), err);
    if (status == STATUS_OK) status = print_tokenizer(out, file, err);
    status = model_file_blame(file, status, err);
    memory_fit_encoder(&chosen, &model);
    if (status == STATUS_OK) status = device_choose(&chosen, &machine.device, why, sizeof why, err);
    if (status != STATUS_OK) return status;
    machine_memory_read(&machine);
    model.file_bytes =
        planned_bytes(model_file_weights(file), chosen.quantization, model.file_bytes);
    status = memory_plan(&memory, &model, &chosen, &machine, err);
    if (status == STATUS_OK) print_memory(out, &memory, &machine);
    if (status == STATUS_OK && shown.program)
        status = print_programs(out, &model, model_file_weights(file), config->ranks, err);
    return status;
}

/* If the summary ends with an error, the files' content is printed all the same: it helps to find
 * the cause. Random tensors follow from the config. */
static enum status inspect(struct model_file *file, const struct engine_config *config,
                           struct inspected shown, FILE *out, struct err *err) {
    const struct gguf *gguf = file->gguf;
    print_kind(out, file);
    enum status status = inspect_summary(file, config, shown, out, err);
    bool has_tensors = has_files(file) || status == STATUS_OK;
    if (has_tensors) print_totals(out, model_file_weights(file));
    if (gguf) {
        fprintf(out, "\nKeys: %d\n", gguf->n_values);
        for (int i = 0; i < gguf->n_values; i++) print_value(out, &gguf->value[i]);
    }
    if (has_tensors && shown.tensors) print_tensors(out, model_file_weights(file));
    return status;
}

enum status engine_inspect(const struct engine_config *config, struct inspected shown, FILE *out,
                           struct err *err) {
    struct model_file file;
    enum model_use use = config->dummy ? MODEL_SHAPE : MODEL_WHOLE;
    enum status status = model_file_open(&file, config->model, use, err);
    if (status != STATUS_OK) return status;
    file.has_stand_in |= config->stand_in_vocabulary;
    status = model_file_guess(&file, config, err);
    if (!status) status = inspect(&file, config, shown, out, err);
    model_file_close(&file);
    if (status == STATUS_OK && (fflush(out) != 0 || ferror(out)))
        status = err_set(err, STATUS_SYSTEM, NULL, "the output could not be written");
    return status;
}
