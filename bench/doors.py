"""Measures what each API costs: the same prompt and answer, streamed through each, in turns, beside a stream of a chat.

    python3 bench/doors.py [--program build/penstock] [--model models/....gguf] [--repeats 9] [--out FILE]

C18a is the tokens/s between the first and the last token, divided by that of the chat of the same repeat. C18b is the TTFT
minus that of the chat, in milliseconds. C18c is the server's processor time of all streams, divided by that of the chats: a
figure for a machine that others use. C18d is the resident memory of an idle server after streams of all APIs, minus that of
one after as many chats. Figures are medians of the repeats. All answers must be the same text.
"""

import json
import socket
import statistics
import time

import machine
import runs

QUESTION = "Write a long story about a ship, its crew and a storm."
N_OUT = 160
IDLE_SECONDS = 2  # after which the server has returned free memory


def bodies(server):
    """{door: (path, body, the text of a piece of the answer or None)}; each computes the same ids."""
    words = {"messages": [{"role": "user", "content": QUESTION}]}
    ids = server.post("/v1/chat/completions/render", {**words, "model": "m", "max_tokens": 1})["token_ids"]
    common = {"model": "m", "stream": True, "temperature": 0}
    return {
        "chat": ("/v1/chat/completions", {**common, **words, "max_tokens": N_OUT}, lambda e: e["choices"][0]["delta"].get("content")),
        "completions": ("/v1/completions", {**common, "prompt": ids, "max_tokens": N_OUT}, lambda e: e["choices"][0]["text"]),
        "responses": ("/v1/responses", {**common, "input": QUESTION, "max_output_tokens": N_OUT},
                      lambda e: e["delta"] if e["type"] == "response.output_text.delta" else None),
        "messages": ("/v1/messages", {**common, **words, "max_tokens": N_OUT}, lambda e: e.get("delta", {}).get("text")),
        "ollama chat": ("/api/chat", {"model": "m", **words, "options": {"temperature": 0, "num_predict": N_OUT}},
                        lambda e: e["message"]["content"]),
        "llama completion": ("/completion", {"prompt": ids, "stream": True, "temperature": 0, "n_predict": N_OUT}, lambda e: e["content"]),
    }


def arrivals(server, path, body):
    """Sends a request. Returns the time until each read, with the bytes; they are parsed afterwards."""
    host, port = server.url.removeprefix("http://").split(":")
    data = json.dumps(body).encode()
    head = (f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(data)}\r\n\r\n")
    reads = []
    with socket.create_connection((host, int(port)), timeout=600) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.perf_counter()
        link.sendall(head.encode() + data)
        while read := link.recv(1 << 16):
            reads.append((time.perf_counter() - began, read))
    return reads


def pieces(reads, text_of):
    """[(time, text)] of the pieces of an answer: events of a stream, or lines of JSON. A line ends in the read of its time."""
    found, line = [], b""
    for when, data in reads:
        *lines, line = (line + data).split(b"\n")
        for one in lines:
            one = one.strip().removeprefix(b"data: ")
            if one.startswith(b"{") and (text := text_of(json.loads(one))):
                found.append((when, text))
    return found


def stream(server, door):
    """One stream: its text, TTFT in ms, tokens/s after the first, and the server's processor time."""
    path, body, text_of = door
    used = machine.process_seconds(server.process.pid)
    reads = arrivals(server, path, body)
    used = machine.process_seconds(server.process.pid) - used
    if not reads or b" 200 " not in reads[0][1][:20]:
        raise RuntimeError(f"{path} answered {b''.join(data for _, data in reads)[:500]!r}")
    found = pieces(reads, text_of)
    times = [when for when, _ in found]
    return "".join(text for _, text in found), times[0] * 1e3, (len(times) - 1) / (times[-1] - times[0]), used


def measure(args):
    """{door: [(TTFT, tokens/s, processor time) of each repeat]}."""
    with runs.Server(args, "--served-model-name", "m") as server:
        doors = bodies(server)
        right, *_ = stream(server, doors["chat"])
        found = {name: [] for name in doors}
        for repeat in range(args.repeats + 1):  # the first warms up
            for name in list(doors)[::-1 if repeat % 2 else 1]:
                text, *figures = stream(server, doors[name])
                assert text == right, f"{name} has another text than chat:\n{text!r}\n{right!r}"
                found[name] += [figures] if repeat else []
        return found


def idle_mib(args, names):
    """The resident memory of a server after streams of these APIs."""
    with runs.Server(args, "--served-model-name", "m", "--warm-up") as server:
        doors = bodies(server)
        for name in names:
            stream(server, doors[name])
        time.sleep(IDLE_SECONDS)
        with open(f"/proc/{server.process.pid}/status") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) / 1024


def more_memory(args, names):
    """MiB that streams of all APIs hold, beyond those of as many chats: the median of three turns."""
    turns = [idle_mib(args, names * 3) - idle_mib(args, ["chat"] * 3 * len(names)) for _ in range(3)]
    return statistics.median(turns)


def report(found):
    """Prints a line for each API, and returns the figures."""
    rows = {}
    print(f"{'door':<17} {'tokens/s':>9} {'TTFT ms':>8} {'C18a':>6} {'C18b ms':>8} {'C18c':>6}")
    chat = found["chat"]
    for name, repeats in found.items():
        ratio = statistics.median(mine[1] / theirs[1] for mine, theirs in zip(repeats, chat))
        later = statistics.median(mine[0] - theirs[0] for mine, theirs in zip(repeats, chat))
        used = sum(one[2] for one in repeats) / max(sum(one[2] for one in chat), 1e-9)
        speed, first = (statistics.median(one[i] for one in repeats) for i in (1, 0))
        rows[name] = {"tokens_s": speed, "ttft_ms": first, "C18a": ratio, "C18b_ms": later, "C18c": used}
        print(f"{name:<17} {speed:9.1f} {first:8.2f} {ratio:6.3f} {later:8.2f} {used:6.3f}", flush=True)
    return rows


def main():
    parser = runs.options(__doc__, repeats=9)
    parser.add_argument("--no-memory", action="store_true", help="leave out C18d")
    args = parser.parse_args()
    figures, found = runs.begin(args), measure(args)
    figures["doors"] = report(found)
    if not args.no_memory:
        figures["C18d_mib"] = more_memory(args, list(found))
        print(f"C18d: {figures['C18d_mib']:.2f} MiB more in an idle server than after chats alone", flush=True)
    runs.write(args, figures)


if __name__ == "__main__":
    main()
