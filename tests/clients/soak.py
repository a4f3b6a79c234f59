"""Many different clients of a proxy for a long time, while a server is restarted every two minutes.

    PYTHONPATH=tests:tests/e2e build/clients/venv/bin/python tests/clients/soak.py [--minutes 30] [--proxy nginx]

One of two servers runs from beginning to end, so that its memory can be watched; the other is restarted. The program
ends with exit code 1 if a request was lost, or if the memory of the first grew after its first quarter.
"""
import argparse
import statistics
import sys
import time

from fleet import PROMPTS, PROXIES, Crowd, chat, completion, in_front, replicas

CLIENTS = 64
LEAVERS = 0.05  # the share of requests whose client disconnects early
SAMPLE_SECONDS = 2
MAX_GROWTH = 0.03
MAX_TOLD = 20  # losses that are shown between two restarts


def mixed_requests():
    """Requests of all kinds: long and short, streamed and whole, several choices, logprobs, stops, samples."""
    found = []
    for i, prompt in enumerate(PROMPTS):
        fields = {"stream": i % 2 == 0}
        found += [completion(prompt, 4 + 5 * i, **fields), chat(prompt, 24 - 3 * i, **fields)]
        found += [completion([prompt, "a"], 8, n=2, **fields), chat(prompt, 8, logprobs=True, top_logprobs=3, **fields)]
        found += [completion(prompt, 12, seed=i, top_p=0.9, logprobs=2, **{**fields, "temperature": 0.8})]
        found += [completion(prompt, 8, echo=True, min_p=0.1, repetition_penalty=1.2, stop=["\x01"], **fields)]
    return found


def watch(crowd, stays, restarted, seconds, every):
    """Runs until the time is over, restarts one server and samples the other's memory: [(seconds, kB)]."""
    begun, samples, next_restart, told = time.monotonic(), [], min(every, seconds / 3), 0
    while (passed := time.monotonic() - begun) < seconds:
        samples.append((passed, stays.resident_kb()))
        if passed > next_restart:
            restarted.restart()
            next_restart += every
            print(f"{passed:6.0f} s: {crowd.answered} answered, {len(crowd.lost)} lost, {restarted.restarts} restarts, "
                  f"{samples[-1][1] / 1024:.1f} MiB", flush=True)
            for text in crowd.lost[told:told + MAX_TOLD]:
                print("lost:", text[:500], flush=True)
            told = len(crowd.lost)
        time.sleep(SAMPLE_SECONDS)
    return samples


def quarters(samples, seconds):
    """The median memory in each quarter of the time, in MiB."""
    parts = [[kb for at, kb in samples if int(at / seconds * 4) == i] for i in range(4)]
    return [statistics.median(part) / 1024 for part in parts]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--every", type=float, default=120, help="seconds from restart to restart")
    parser.add_argument("--proxy", choices=sorted(PROXIES), default="nginx")
    args = parser.parse_args()
    with replicas() as (stays, restarted), in_front(args.proxy, [stays, restarted]) as url:
        with Crowd(url, CLIENTS, mixed_requests(), LEAVERS) as crowd:
            samples = watch(crowd, stays, restarted, args.minutes * 60, args.every)
    memory = quarters(samples, args.minutes * 60)
    for text in crowd.lost[-MAX_TOLD:]:
        print("lost:", text[:500])
    print(f"{CLIENTS} clients behind {args.proxy} for {args.minutes:g} min: {crowd.answered} answered, {len(crowd.lost)} lost, "
          f"{restarted.restarts} restarts, {crowd.left} left; memory by quarters "
          + ", ".join(f"{mib:.1f}" for mib in memory) + " MiB")
    flat = memory[3] <= memory[1] * (1 + MAX_GROWTH)
    if not flat:
        print("the memory grew")
    return 0 if flat and not crowd.lost and restarted.restarts > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
