"""Measures models with recurrent layers or latent attention compared with llama.cpp, guesses of a model's own layer
(MTP) compared with none, and hits at kept states compared with hits of a model with attention only.

    python3 bench/states.py [--only qwen35 lfm2 deepseek kimi mistral4 mtp hit ...] [--repeats 3] [--out docs/measurements/NAME.json]

bench/state_files.py makes the models. The shapes have the works and goals of bench/families.py. MTP answers the prompts
of C13a (bench/speculation.py) in turns with a server without it, and must give the same tokens. A hit is a prompt whose
first 4,000 tokens are those of an earlier prompt; the other model has attention in all layers and the same widths. The
run takes seven minutes on a quiet machine; after that, no further shape is begun.
"""
import statistics
import time

import families
import runs
import speculation
import works

HERE = families.HERE
SHAPES = tuple(f"{name}-{kind}" for kind in families.TYPES for name in ("qwen35", "lfm2", "deepseek"))
# The numbers of their rows follow those of MTP and the hit.
LATER = tuple(f"{name}-{kind}" for kind in families.TYPES for name in ("kimi", "mistral4"))
MTP = f"{HERE}/qwen35-mtp"
N_OUT, N_GUESSES = 96, 2
N_SHARED, N_OWN = 4000, 32
TIMES = works.Metric("speed", "times without", None)


# ---- guesses of the model's own layer -------------------------------------------------------------------------------

class Server(speculation.Server):
    """One that continues the texts themselves, which end in different tokens: the model's answer depends on the last
    token alone."""

    def ask(self, prompt, fields):
        body = {"prompt": prompt, "temperature": 0, "ignore_eos": True, "return_token_ids": True, **fields}
        return self.post("/v1/completions", body)["choices"][0]["token_ids"]


def measure_mtp(bench):
    """The geometric mean of the four tasks of C13a, of each repeat."""
    args, ratios = bench.args, {}
    flags = ("--quantization", "q8_0", "--max-model-len", "2048", "--max-num-seqs", "4", "--threads", str(args.threads))
    guess = f'{{"method": "mtp", "num_speculative_tokens": {N_GUESSES}}}'
    args.model, args.cpu = MTP, False
    with Server(args, *flags) as off, Server(args, *flags, "--speculative-config", guess) as on:
        for name, (kind, prompt, _) in speculation.tasks().items():
            if kind != "C13a":
                continue
            ratios[name], held, share, _ = speculation.compare(args, off, on, 1, prompt, {"max_tokens": N_OUT}, args.repeats)
            print(f"{name:16} {statistics.median(ratios[name]):.2f} times as fast; {held:.0%} of {share:.2f} drafts a token held")
    means = [speculation.geometric_mean(of_repeat) for of_repeat in zip(*ratios.values())]
    return [families.row("S7", "q8_0", f"{N_GUESSES} guesses of MTP, texts of C13a", TIMES, {"penstock": means},
                         families.goal(None, 1.3))]


# ---- hits at kept states --------------------------------------------------------------------------------------------

def first_token_ms(server, ids):
    began = time.perf_counter()
    server.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "temperature": 0, "ignore_eos": True})
    return 1e3 * (time.perf_counter() - began)


def measure_hit(bench):
    """TTFT after 4,000 tokens whose keys and values, or states, are cached."""
    args, shared = bench.args, works.token_ids(N_SHARED, "states")
    flags = ("--max-model-len", "4608", "--max-num-seqs", "4", "--threads", str(args.threads))
    paths = {"penstock": f"{HERE}/qwen35-q8_0.gguf", "attention only": f"{HERE}/qwen35-attention-q8_0.gguf"}
    servers = {}
    try:
        for name, path in paths.items():
            args.model = path
            servers[name] = runs.Server(args, *flags).__enter__()
            first_token_ms(servers[name], shared + works.token_ids(1, "end"))  # the last token of a prompt is never cached
        found = bench.in_turn({name: lambda repeat, s=server: first_token_ms(s, shared + works.token_ids(N_OWN, f"own {repeat}"))
                               for name, server in servers.items()},
                              {name: [server.process.pid for server in servers.values()] for name in servers})
    finally:
        for server in servers.values():
            server.__exit__()
    ttft = works.Metric("TTFT p50", "ms", None, True)
    return [families.row("S8", "q8_0", f"{N_SHARED:,} cached + {N_OWN} own tokens", ttft, found,
                         families.goal("attention only", 1 / 1.2))]


def parts():
    """Returns {name for --only: (its requirements, its function)}."""
    made = {"mtp": (f"{MTP}/config.json", measure_mtp), "hit": (f"{HERE}/qwen35-attention-q8_0.gguf", measure_hit)}
    for number, shape in [*enumerate(SHAPES, 1), *enumerate(LATER, len(SHAPES) + len(made) + 1)]:
        name, kind = shape.rsplit("-", 1)
        made[shape] = (f"{HERE}/{shape}.gguf", lambda bench, n=name, k=kind, i=number: families.measure_shape(bench, n, k, i, "S"))
    return made


if __name__ == "__main__":
    families.run_parts(__doc__, parts(), "bench/state_files.py", seconds=420)
