"""Times transformers on a Llama with random weights, to compare with gpu_serve: gpu_peer.py OUT SECONDS [from=N] [tiny]

    P5  a prompt of 2,048 and of 8,192 tokens, one forward pass with sdpa attention
    P2  generate_batch, continuous batching: 32 requests of 256 in 1,024 out; the second of two runs counts, because the first
        one compiles and grows its cache
    P1  generate, one request of 128 in 512 out, static cache, eager; then the same with torch.compile (CUDA graphs)

It appends lines of JSON to OUT as they are measured, with the same fields and the same order of lines as gpu_serve's. from=N
leaves out the first N figures (bench/gpu/points.py). The notes say whether the package flash_attn is there: without it,
generate_batch takes a slower path. Tokens are greedy, and every
sequence runs to its full length. Exit code 77: torch or transformers cannot be imported, or there is no GPU; 3: some figures
were left out for lack of time.
"""
import importlib.util
import json
import sys
import time

LLAMA = {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "max_position_embeddings": 16384, "rms_norm_eps": 1e-5,
         "tie_word_embeddings": False}
TINY = {**LLAMA, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 300, "max_position_embeddings": 256}


class Peer:
    def __init__(self, out, seconds, tiny, first=0):
        import torch
        import transformers
        self.torch, self.transformers = torch, transformers
        self.out, self.end, self.tiny, self.left_out = out, time.monotonic() + seconds, tiny, 0
        self.first, self.next = first, 0
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        flash = "is there" if importlib.util.find_spec("flash_attn") else "is not installed"
        self.versions = f"transformers {transformers.__version__}, torch {torch.__version__}, flash attention {flash}"

    def write(self, **fields):
        self.out.write(json.dumps({"part": "peers", "model": "tiny" if self.tiny else "Llama-3.1-8B", **fields}) + "\n")
        self.out.flush()

    def open(self, attention):
        config = self.transformers.LlamaConfig(**(TINY if self.tiny else LLAMA), attn_implementation=attention)
        with self.torch.device(self.device):
            model = self.transformers.AutoModelForCausalLM.from_config(config, dtype=self.torch.bfloat16)
        model.generation_config.eos_token_id = model.generation_config.pad_token_id = None
        return model.eval()

    def prompt(self, length, seed=0):
        generator = self.torch.Generator().manual_seed(seed)
        vocabulary = (TINY if self.tiny else LLAMA)["vocab_size"]
        return self.torch.randint(0, vocabulary, (1, length), generator=generator).to(self.device)

    def wait(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def timed(self, work):
        self.wait()
        started = time.monotonic()
        result = work()
        self.wait()
        return time.monotonic() - started, result

    def figure(self, name, needs_s, what, unit, measure):
        """measure() returns value and note; an exception is written to OUT, not passed on."""
        number, self.next = self.next, self.next + 1
        if number < self.first:
            return
        left = self.end - time.monotonic()
        if left < needs_s and not self.tiny:
            self.left_out += 1
            self.write(id=name, what=what, left_out=True, why=f"{left:.0f} s were left, and it takes about {needs_s}")
            return
        self.write(id=name, what=what, starts=number, within_s=max(left, 0))
        try:
            value, note = measure()
            self.write(id=name, what=what, value=value, unit=unit, us=0, bytes=0, flops=0, note=f"{self.versions}{note}")
        except Exception as error:  # any exception of the other project's code is a result here
            self.write(id=name, what=what, failed=f"{type(error).__name__}: {str(error)[:300]}")


def decode_rate(peer, model, n_prompt, n_output, warm):
    """Tokens per second after the first one: the time of the whole generation minus that of one token."""
    def generate(n):
        return model.generate(peer.prompt(n_prompt), max_new_tokens=n, min_new_tokens=n, do_sample=False,
                              cache_implementation="static", disable_compile=not warm)
    for _ in range(3 if warm else 1):
        generate(n_output)
    whole, _ = peer.timed(lambda: generate(n_output))
    first, _ = peer.timed(lambda: generate(1))
    return (n_output - 1) / max(whole - first, 1e-9)


def batch_rate(peer, model, n, n_prompt, n_output):
    inputs = [peer.prompt(n_prompt, i)[0].tolist() for i in range(n)]
    settings = peer.transformers.GenerationConfig(max_new_tokens=n_output, min_new_tokens=n_output, do_sample=False,
                                                  eos_token_id=-1, pad_token_id=0)
    def generate():
        return model.generate_batch(inputs, generation_config=settings, progress_bar=False)
    cold, _ = peer.timed(generate)
    seconds, outputs = peer.timed(generate)
    tokens = sum(len(output.generated_tokens) for output in outputs.values())
    return tokens / seconds, f", {tokens} tokens in {seconds:.1f} s, the run before it in {cold:.1f} s"


def prefill_rate(peer, model, n):
    ids = peer.prompt(n)
    with peer.torch.no_grad():
        runs = [peer.timed(lambda: model(ids, use_cache=True, logits_to_keep=1))[0] for _ in range(4)]
    return n / min(runs[1:]), f", {min(runs[1:]) * 1e3:.1f} ms"


def measure(peer):
    small = peer.tiny
    n_prompt, n_output = (8, 4) if small else (128, 512)
    model = peer.open("sdpa")
    for n in (16, 32) if small else (2048, 8192):
        peer.figure("P5", 5, f"transformers: a prompt of {n} tokens", "tok/s", lambda n=n: prefill_rate(peer, model, n))
    batch = (3, 8, 4) if small else (32, 256, 1024)
    peer.figure("P2", 90, "transformers generate_batch, {} requests of {} in, {} out, warm".format(*batch), "tok/s",
                lambda: batch_rate(peer, model, *batch))
    peer.figure("P1", 40, "transformers generate, one request decodes, static cache, eager", "tok/s",
                lambda: (decode_rate(peer, model, n_prompt, n_output, False), ""))
    peer.figure("P1", 90, "transformers generate, one request decodes, static cache, torch.compile", "tok/s",
                lambda: (decode_rate(peer, model, n_prompt, n_output, True), ""))


def main():
    options = sys.argv[3:]
    tiny, firsts = "tiny" in options, [int(o[5:]) for o in options if o.startswith("from=") and o[5:].isdigit()]
    if len(sys.argv) < 3 or len(options) != tiny + len(firsts):
        print(__doc__)
        return 2
    with open(sys.argv[1], "a" if firsts else "w", encoding="utf-8") as out:
        try:
            peer = Peer(out, float(sys.argv[2]), tiny, *firsts)
        except ImportError as error:
            print(f"gpu_peer: {error}")
            return 77
        if peer.device != "cuda" and not tiny:
            print("gpu_peer: torch sees no GPU")
            return 77
        measure(peer)
        out.write(json.dumps({"ends": peer.next}) + "\n")
        return 3 if peer.left_out else 0


if __name__ == "__main__":
    sys.exit(main())
