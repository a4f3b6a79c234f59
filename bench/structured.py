"""Measures the cost of a schema: users whose answers follow one, compared with the same users without it, in turns.

    python3 bench/structured.py [--program build/penstock] [--model models/....gguf] [--repeats 5] [--users 8] [--out FILE]

C14a is the tokens/s of users with a schema of 30 fields divided by those of users without, who get as many tokens; once
with all tokens sampled, and once with forced tokens not sampled. C14b is the ITL p99 of free streams among constrained
ones divided by that among free ones. Figures are medians of the repeats. All answers must match the schema.
"""

import concurrent.futures
import json
import time
import urllib.request

import runs

PROMPT = "Describe a town, with all that a traveller wants to know."
N_FIELDS, MAX_TOKENS = 30, 2000


def schema():
    """Fields of all types, each bounded, so that an answer always ends."""
    kinds = [{"type": "string", "maxLength": 24}, {"type": "integer", "minimum": 0, "maximum": 99999}, {"type": "boolean"},
             {"enum": ["low", "middle", "high"]}, {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3},
             {"type": ["number", "null"], "minimum": 0, "maximum": 100}]
    properties = {f"field_{i}": kinds[i % len(kinds)] for i in range(N_FIELDS)}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def stream(server, fields):
    """Returns the text of an answer and the arrival times of its chunks."""
    body = {"messages": [{"role": "user", "content": PROMPT}], "temperature": 1, "stream": True, "ignore_eos": True,
            "stream_options": {"include_usage": True}, **fields}
    request = urllib.request.Request(server.url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    text, times, tokens = "", [], 0
    with urllib.request.urlopen(request) as answer:
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            chunk = json.loads(line[6:])
            tokens = (chunk.get("usage") or {}).get("completion_tokens", tokens)
            for choice in chunk["choices"]:
                if choice["delta"].get("content"):
                    text += choice["delta"]["content"]
                    times.append(time.perf_counter())
    return text, times, tokens


def together(server, bodies):
    """Returns the seconds until all have their answers, and the answers."""
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        began = time.perf_counter()
        answers = list(pool.map(lambda fields: stream(server, fields), bodies))
        return time.perf_counter() - began, answers


def constrained(seed):
    return {"guided_json": schema(), "max_tokens": MAX_TOKENS, "seed": seed}


def throughput(server, users, round_, forced):
    """Tokens/s with the schema divided by tokens/s without. Logprobs keep tokens from being forced, on both sides."""
    wanted = {} if forced else {"logprobs": True}
    seconds, answers = together(server, [{**constrained(round_ * users + user), **wanted} for user in range(users)])
    for text, _, tokens in answers:
        assert tokens < MAX_TOKENS and len(json.loads(text)) == N_FIELDS, text
    free, _ = together(server, [{"max_tokens": tokens, "seed": user, **wanted} for user, (_, _, tokens) in enumerate(answers)])
    return free / seconds


def itl_p99(server, users, beside, round_):
    """Milliseconds, of free streams among as many others."""
    free = [{"max_tokens": 160, "seed": round_ * users + user} for user in range(users)]
    others = [constrained(user) if beside else {"max_tokens": 200, "seed": user} for user in range(users)]
    _, answers = together(server, free + others)
    gaps = sorted(b - a for _, times, _ in answers[:users] for a, b in zip(times, times[1:]))
    return gaps[len(gaps) * 99 // 100] * 1e3


def measure(server, args, found):
    """One round of all three."""
    round_ = 1 + len(found["itl_p99"])
    found["tokens_s"].append(throughput(server, args.users, round_, False))
    found["tokens_s_forced"].append(throughput(server, args.users, round_, True))
    sides = {}
    for beside in (True, False) if round_ % 2 else (False, True):
        sides[beside] = itl_p99(server, args.users, beside, round_)
    found["itl_p99"].append(sides[True] / sides[False])


SAID = {"tokens_s": "C14a: {users} users with a schema of {fields} fields, tokens/s of those without it, each token sampled",
        "tokens_s_forced": "C14a: the same with forced tokens",
        "itl_p99": "C14b: ITL p99 of {users} free streams beside as many constrained ones, of that beside free ones"}


def main():
    parser = runs.options(__doc__, repeats=5, flags=True)
    parser.add_argument("--seconds", type=float, default=150, help="after which no further repeat begins")
    parser.add_argument("--users", type=int, default=8)
    args = parser.parse_args()
    report, found = runs.begin(args), {name: [] for name in SAID}
    began = time.perf_counter()
    with runs.Server(args, *args.flags) as server:
        throughput(server, args.users, 0, True)  # warms up: the masks of most states are known afterwards
        while len(found["itl_p99"]) < args.repeats and (not found["itl_p99"] or time.perf_counter() - began < args.seconds):
            measure(server, args, found)
    for name, ratios in found.items():
        said = SAID[name].format(users=args.users, fields=N_FIELDS)
        print(f"{said}: {runs.spread(ratios, 3)}", flush=True)
    runs.write(args, {**report, "users": args.users, "fields": N_FIELDS, "ratios": found})


if __name__ == "__main__":
    main()
