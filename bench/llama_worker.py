"""Runs llama.cpp through its batch API, without any server: its best case. bench/llama.py starts it with the peer's
Python.

    {"do": "load", "model": PATH}                 loads the file; answers with the library's version and features
    {"do": "context", "n_ctx": ..., ...}          makes a context with these llama_context_params; keeps the last few
    {"do": "run", "queues": [[[ids], ...], ...], "n_out": N, "shared": S}
                                                  a queue of prompts per user, each sent after the last answer; returns times, tokens
    {"do": "logits", "ids": [ids], "first": N}    for each i >= N: the likeliest id after ids[:i], and how much likelier
                                                  than ids[i] it is, as a difference of logits
    {"do": "scores", "ids": [ids], "file": PATH}  the logits [len(ids)][V] as raw float32 in a file
    {"do": "memory"}                              the process's memory, and the seconds since its imports

Requests join the batch as in its server: a step holds one token of every sequence that decodes, then as much of the
waiting prompts as n_batch allows. The first S tokens of all prompts, if S > 0, are computed once and then copied from
sequence to sequence, which copies no data.
"""
import ctypes
import json
import os
import time

import llama_cpp as lib
import numpy as np

import worker


@lib.llama_log_callback
def silent(_level, _text, _data):
    pass


class Batch:
    """A llama_batch whose arrays are written through numpy."""

    def __init__(self, size):
        self.raw = lib.llama_batch_init(size, 0, 1)
        self.token = np.ctypeslib.as_array(self.raw.token, (size,))
        self.position = np.ctypeslib.as_array(self.raw.pos, (size,))
        self.wants = np.ctypeslib.as_array(self.raw.logits, (size,))
        # Each token's list of sequences has one entry; the lists are contiguous, so that numpy can write them.
        self.lists = np.ctypeslib.as_array(ctypes.cast(self.raw.seq_id, ctypes.POINTER(ctypes.c_size_t)), (size,))
        self.its_own = self.lists.copy()
        self.ids = (ctypes.c_int32 * size)()
        self.sequence = np.ctypeslib.as_array(self.ids)
        self.lists[:] = ctypes.addressof(self.ids) + 4 * np.arange(size)
        np.ctypeslib.as_array(self.raw.n_seq_id, (size,))[:] = 1
        self.n = 0

    def free(self):
        self.lists[:] = self.its_own
        lib.llama_batch_free(self.raw)

    def add(self, tokens, position, sequence, wants_last):
        at, n = self.n, len(tokens)
        self.token[at:at + n] = tokens
        self.position[at:at + n] = range(position, position + n)
        self.sequence[at:at + n] = sequence
        self.wants[at:at + n] = 0
        self.wants[at + n - 1] = wants_last
        self.n = at + n


class Context:
    def __init__(self, model, settings):
        parameters = lib.llama_context_default_params()
        for name, value in settings.items():
            setattr(parameters, name, value)
        parameters.no_perf = True
        self.raw = lib.llama_init_from_model(model, parameters)
        if not self.raw:
            raise RuntimeError(f"llama.cpp takes no context of {settings}")
        self.n_batch = lib.llama_n_batch(self.raw)
        self.memory = lib.llama_get_memory(self.raw)
        self.V = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
        self.batch = Batch(self.n_batch)

    def decode(self, rows):
        """Runs the batch and returns the logits of its `rows` requested rows."""
        self.batch.raw.n_tokens = self.batch.n
        code = lib.llama_decode(self.raw, self.batch.raw)
        if code:
            raise RuntimeError(f"llama_decode gave {code}")
        self.batch.n = 0
        return np.ctypeslib.as_array(lib.llama_get_logits(self.raw), (rows, self.V)) if rows else None

    def clear(self):
        lib.llama_memory_clear(self.memory, False)

    def free(self):
        self.batch.free()
        lib.llama_free(self.raw)


class Request:
    def __init__(self, user, prompt, now):
        self.user, self.prompt, self.start = user, prompt, now
        self.n_past, self.times, self.tokens = 0, [], []


class Loop:
    """Users in a closed loop over one context: each sends its next prompt when the previous one is answered."""

    def __init__(self, context, queues, n_out, shared):
        self.context, self.n_out, self.shared = context, n_out, shared
        self.store = len(queues) if shared else None
        self.has_shared = False
        self.queues = [list(queue) for queue in queues]
        self.running, self.done = [], []

    def next_request(self, user):
        if not self.queues[user]:
            return
        request = Request(user, self.queues[user].pop(0), time.perf_counter() - self.began)
        if self.has_shared:
            lib.llama_memory_seq_cp(self.context.memory, self.store, user, 0, self.shared)
            request.n_past = self.shared
        self.running.append(request)

    def fill(self):
        """The step's batch; returns the requests that get a token, in the order of their rows."""
        batch, rows = self.context.batch, []
        for request in self.running:
            if request.tokens:
                batch.add(request.tokens[-1:], request.n_past, request.user, True)
                request.n_past += 1
                rows.append(request)
        for request in self.running:
            room = min(self.context.n_batch - batch.n, len(request.prompt) - request.n_past)
            if request.tokens or room <= 0:
                continue
            end = request.n_past + room
            batch.add(request.prompt[request.n_past:end], request.n_past, request.user, end == len(request.prompt))
            request.n_past = end
            if end == len(request.prompt):
                rows.append(request)
        return rows

    def take(self, request, token, now):
        request.tokens.append(token)
        request.times.append(now)
        memory = self.context.memory
        if self.shared and not self.has_shared:
            lib.llama_memory_seq_cp(memory, request.user, self.store, 0, self.shared)
            self.has_shared = True
        if len(request.tokens) == self.n_out:
            self.running.remove(request)
            self.done.append(request)
            lib.llama_memory_seq_rm(memory, request.user, -1, -1)
            self.next_request(request.user)

    def run(self):
        self.context.clear()
        self.began = time.perf_counter()
        for user in range(len(self.queues)):
            self.next_request(user)
        while self.running:
            rows = self.fill()
            logits = self.context.decode(len(rows))
            if not rows:
                continue
            tokens = logits.argmax(axis=1).tolist()
            now = time.perf_counter() - self.began
            for request, token in zip(rows, tokens):
                self.take(request, token, now)
        return [{"user": r.user, "start": r.start, "times": r.times, "tokens": r.tokens} for r in self.done]


class Worker:
    MOST_CONTEXTS = 3

    def __init__(self):
        self.model, self.contexts, self.context = None, {}, None

    def load(self, model):
        for context in self.contexts.values():
            context.free()
        self.contexts, self.context = {}, None
        if self.model:
            lib.llama_model_free(self.model)
        self.model = lib.llama_model_load_from_file(os.fsencode(model), lib.llama_model_default_params())
        if not self.model:
            raise RuntimeError(f"llama.cpp does not load {model}")
        return {"system": lib.llama_print_system_info().decode()}

    def make_context(self, **settings):
        key = json.dumps(settings, sort_keys=True)
        if key not in self.contexts:
            while len(self.contexts) >= self.MOST_CONTEXTS:
                self.contexts.pop(next(iter(self.contexts))).free()
            self.contexts[key] = Context(self.model, settings)
        self.context = self.contexts[key]
        return {}

    def run(self, queues, n_out, shared=0):
        return {"requests": Loop(self.context, queues, n_out, shared).run()}

    def rows(self, ids):
        """Yields the logits after each of the ids, in chunks, each [n][V]."""
        self.context.clear()
        for at in range(0, len(ids), 256):
            chunk = ids[at:at + 256]
            self.context.batch.add(chunk, at, 0, True)
            self.context.batch.wants[:len(chunk)] = 1
            yield self.context.decode(len(chunk))

    def logits(self, ids, first):
        rows = np.concatenate(list(self.rows(ids[:-1])))[first - 1:].astype(np.float64)
        rows -= rows.max(axis=1, keepdims=True)
        rows -= np.log(np.exp(rows).sum(axis=1, keepdims=True))
        best = rows.argmax(axis=1)
        given = rows[np.arange(len(rows)), ids[first:]]
        return {"best": best.tolist(), "gap": (rows.max(axis=1) - given).tolist()}

    def scores(self, ids, file):
        with open(file, "wb") as out:
            for rows in self.rows(ids):
                out.write(np.ascontiguousarray(rows, dtype=np.float32).tobytes())
        return {}


def main():
    lib.llama_log_set(silent, None)
    one = Worker()
    lib.llama_backend_init()
    worker.answer({"load": one.load, "context": one.make_context, "run": one.run, "logits": one.logits,
                   "scores": one.scores, "memory": worker.memory})


main()
