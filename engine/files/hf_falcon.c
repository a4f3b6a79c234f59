/* Reads the keys of Falcon's config.json that describe heads, branches and norms. Its first models
 * (7B) have one key head, later ones (11B, 40B) the "new decoder architecture". */
#include "engine/files/hf_config.h"
#include "engine/files/hf_keys.h"

/* Refuses models with other positions, biases, or one branch after the other. */
static enum status refuse_others(const struct json *root, bool is_new, struct err *err) {
    const struct {
        const char *key;
        bool served;
    } keys[] = {{"alibi", false}, {"bias", false}, {"parallel_attn", true}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        bool found;
        enum status status = key_bool_or(root, keys[i].key, keys[i].served, &found, err);
        if (status) return status;
        if (found != keys[i].served && !(is_new && keys[i].served))
            return err_set(err, STATUS_BAD_FILE, keys[i].key, "key %s: only %s is supported",
                           keys[i].key, keys[i].served ? "true" : "false");
    }
    return STATUS_OK;
}

enum status hf_falcon_read(struct model_config *config, struct hf_config *hf, struct err *err) {
    static const char heads_key[] = "num_kv_heads|n_head_kv";
    const struct json *root = hf->text;
    bool is_new, has_one;
    int heads, norms;
    enum status status = key_bool_or(root, "new_decoder_architecture", false, &is_new, err);
    if (!status) status = key_bool_or(root, "multi_query", true, &has_one, err);
    if (!status) status = refuse_others(root, is_new, err);
    if (!status) status = key_int_or(root, heads_key, 1, MAX_HEADS, config->H, &heads, err);
    if (!status)
        status = key_int_or(root, "num_ln_in_parallel_attn", 1, 2, is_new ? 2 : 1, &norms, err);
    if (status) return status;
    config->G = is_new ? heads : has_one ? 1 : config->H;
    hf->has_bias[HF_TWO_NORMS] = is_new && norms == 2;
    if (config->H % config->G == 0) return STATUS_OK;
    return err_set(err, STATUS_BAD_FILE, "num_kv_heads",
                   "%d key-value heads (num_kv_heads) do not divide %d heads (num_attention_heads)",
                   config->G, config->H);
}
