/* Attention: chooses the kernel. */
#include "kernels/cuda/attention/kernel.cuh"

/* defined in attention/f16.cu and so on, one file per type of cache */
void attention_run_f16(const attention_args &args, const attention_launch &how, int n_items,
                       cudaStream_t stream);
void attention_run_bf16(const attention_args &args, const attention_launch &how, int n_items,
                        cudaStream_t stream);
void attention_run_e4m3(const attention_args &args, const attention_launch &how, int n_items,
                        cudaStream_t stream);

bool attention_fits(enum dtype act, const struct kv_view *kv) {
    const int element = kv->type == KV_E4M3 ? 1 : 2;
    return (act == DTYPE_F16 || act == DTYPE_BF16) && kv->type != KV_F32 && kv->D % 2 == 0 &&
           kv->D * element % 16 == 0;
}

void attention_run(enum dtype act, const struct attention_args *args,
                   const struct attention_plan *plan, cudaStream_t stream,
                   const struct attention_chunks *chunks) {
    assert(attention_fits(act, &args->kv) && args->kv.D <= ATTENTION_MAX_D &&
           args->H % args->kv.G == 0);
    const attention_launch how = {act, plan->heads, plan->head_parts,
                                  args->kv.G * plan->head_parts};
    auto *run = args->kv.type == KV_F16    ? attention_run_f16
                : args->kv.type == KV_BF16 ? attention_run_bf16
                                           : attention_run_e4m3;
    const int others = plan->n_items - plan->n_chunks;
    run(*args, how, others, stream);
    if (plan->n_chunks == 0) return;
    attention_args last = *args;
    last.items += others;
    chunks->run(last, how, plan->n_chunks, stream);
}
