"""Measures the cost of beams (C13f): a search with 4 beams compared with 4 plain streams of the same prompt, in turns,
on one server.

    python3 bench/beams.py [--program build/penstock] [--model models/....gguf] [--repeats 5] [--beams 4]

Both generate 128 tokens from 128. The figure is the time of the streams divided by that of the search, the median of
the repeats. A search computes as many rows, and also ranks their candidates and forks their blocks.
"""

import concurrent.futures
import json
import time
import urllib.request

import runs

N_IN = N_OUT = 128


def complete(server, fields):
    body = {"prompt": [1000 + 7 * i for i in range(N_IN)], "max_tokens": N_OUT, "temperature": 0, "ignore_eos": True,
            "return_token_ids": True, **fields}
    request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        ids = [choice["token_ids"] for choice in json.load(answer)["choices"]]
    assert all(len(one) == N_OUT for one in ids), "an answer is shorter than was asked for"


def seconds(server, bodies):
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        began = time.perf_counter()
        list(pool.map(lambda body: complete(server, body), bodies))
        return time.perf_counter() - began


def main():
    parser = runs.options(__doc__, repeats=5, flags=True)
    parser.add_argument("--beams", type=int, default=4)
    args = parser.parse_args()
    report, ratios = runs.begin(args), []
    with runs.Server(args, *args.flags) as server:
        for repeat in range(args.repeats + 1):  # the first one warms up: the prompt is in the prefix cache afterwards
            search = seconds(server, [{"use_beam_search": True, "best_of": args.beams, "n": args.beams}])
            plain = seconds(server, [{} for _ in range(args.beams)])
            if repeat > 0:
                ratios.append(plain / search)
    print(f"C13f: the speed of {args.beams} beams, divided by that of {args.beams} streams: {runs.spread(ratios)}")
    runs.write(args, {**report, "beams": args.beams, "ratios": ratios})


if __name__ == "__main__":
    main()
