"""Receipts of the real model: made with one CPU path and thread count, verified with another; forged ones are found."""
import base64
import hashlib
import json
import os
import shutil
import subprocess

import pytest

from conftest import BINARY, MODEL, NAME, ROOT, environment
from streams import until

SAME, FAILED, USAGE, OTHER_TOKENS, OTHER_ORIGIN, BROKEN = 0, 1, 2, 4, 5, 6
CHAT = {"model": NAME, "messages": [{"role": "user", "content": "Name a river."}], "max_tokens": 6}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {
    "type": "object", "properties": {"river": {"type": "string", "maxLength": 8}}, "required": ["river"]}}}
BODIES = [
    # So hot that two choices never have the same tokens.
    ("/v1/chat/completions", {**CHAT, "n": 2, "temperature": 1.8, "ignore_eos": True, "user": "u"}),
    ("/v1/chat/completions", {**CHAT, "temperature": 0, "response_format": SCHEMA, "max_tokens": 24}),
    ("/v1/completions", {"model": NAME, "prompt": ["Once upon", "The"], "max_tokens": 6, "temperature": 1.2, "stop": ["."], "seed": 2**63 - 1}),
    ("/v1/messages", {**CHAT, "temperature": 1}),
    ("/v1/responses", {"model": NAME, "input": "Name a river.", "max_output_tokens": 6}),
]
STREAMED = (0, 3)  # of BODIES, whole and as a stream: the plain path is slow


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    private, public = folder / "private.pem", folder / "public.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True)
    return private, public


@pytest.fixture(scope="module")
def answers(keys, tmp_path_factory):
    """Files of answers with receipts, whole and streamed, of a server with the plain path and one thread."""
    from conftest import Server
    folder = tmp_path_factory.mktemp("answers")
    server = Server("--max-model-len", "256", "--kv-cache-memory", "64MiB", "--receipt-key", str(keys[0]), "--threads", "1",
                    env={"PENSTOCK_CPU": "plain"})
    try:
        server.wait_until_ready()
        for i, (path, body) in enumerate(BODIES):
            for stream in (False, True) if i in STREAMED else (False,):
                done = server.post(path, {**body, "receipt": True, "stream": stream})
                assert done.status_code == 200, done.text
                (folder / f"{i}-{stream}").write_text(done.text)
        assert "receipt" not in server.post("/v1/completions", {"prompt": "x", "max_tokens": 1}).json()
        refused = server.post("/completion", {"prompt": "x", "receipt": True})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "receipt"
    finally:
        server.stop()
    return folder


def verify(*files, flags=(), model=MODEL, env=None):
    done = subprocess.run([BINARY, "verify", *map(str, files), "--model", model, "--max-model-len", "256", "--kv-cache-memory", "64MiB",
                           *map(str, flags)], capture_output=True, text=True, env={**environment(), **(env or {})}, timeout=600)
    return done.returncode, done.stdout, done.stderr


def receipt_of(folder, i=0):
    return json.loads((folder / f"{i}-False").read_text())["receipt"]


def write(path, receipt):
    """Stores a receipt with the digest that it should have, and without a signature."""
    payload = {k: v for k, v in receipt.items() if k not in ("digest", "public_key", "signature")}
    text = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    path.write_text(json.dumps({**payload, "digest": hashlib.sha256(text.encode()).hexdigest()}, indent=1))
    return path


def hash_of(ids):
    return hashlib.sha256(b"".join(i.to_bytes(4, "little") for i in ids)).hexdigest()


def test_receipts_of_all_apis_hold_on_another_path(answers, keys):
    files = sorted(answers.iterdir())
    code, out, err = verify(*files, flags=["--public-key", keys[1], "--threads", "2", "--max-num-seqs", "3"])
    assert code == SAME, out + err
    assert out.count("the same") == len(files) == len(BODIES) + len(STREAMED) and out.count("signed by this key") == len(files)


def test_the_last_data_event_of_a_stream_has_the_receipt(answers):
    for path in answers.glob("*-True"):
        events = [json.loads(line[6:]) for line in path.read_text().splitlines() if line.startswith("data: {")]
        assert "receipt" in events[-1] and not any("receipt" in event for event in events[:-1])


def test_a_receipt_states_how_the_answer_was_made(answers):
    receipt = receipt_of(answers)
    with open(MODEL, "rb") as file:
        assert receipt["fingerprint"]["model"] == hashlib.file_digest(file, "sha256").hexdigest()
    assert receipt["fingerprint"]["adapter"] is None and receipt["fingerprint"]["device"] == "cpu"
    assert receipt["sampling"]["temperature"] == 1.8 and receipt["sampling"]["top_p"] == 1
    assert json.loads(receipt["body"]) == {k: v for k, v in BODIES[0][1].items() if k != "user"} | {"receipt": True, "stream": False}
    assert [o["sha256"] for o in receipt["outputs"]] == [hash_of(o["ids"]) for o in receipt["outputs"]]
    assert receipt["outputs"][0]["ids"] != receipt["outputs"][1]["ids"]
    assert len(base64.b64decode(receipt["signature"])) == 64


def test_forged_receipts_are_found_by_computing(answers, tmp_path):
    def token(r):
        r["outputs"][1]["ids"][3] += 1
        r["outputs"][1]["sha256"] = hash_of(r["outputs"][1]["ids"])

    def seed(r):
        r["prompts"][0]["seed"] = str(int(r["prompts"][0]["seed"]) ^ 1)

    def prompt(r):
        r["prompts"][0]["ids"][5] += 1

    def cut(r):
        r["outputs"][0]["ids"].pop()
        r["outputs"][0]["sha256"] = hash_of(r["outputs"][0]["ids"])

    def model(r):
        r["fingerprint"]["model"] = "0" * 64

    def dtype(r):
        r["fingerprint"]["kv_cache"] = "float32"

    def setting(r):
        r["sampling"]["temperature"] = 1.9

    def refused(r):
        r["body"] = json.dumps({**json.loads(r["body"]), "temperature": "hot"})

    def output(r):
        r["outputs"].pop()

    forged = [
        (token, "another token: position 3 of output 1 is "), (seed, "another token: position "),
        (prompt, "another token: position 5 of prompt 0"), (cut, "position 5 of output 0 is absent"),
        (model, "another fingerprint: model is 000"), (dtype, "kv_cache is float32 in the receipt, and int16 here"),
        (setting, "sampling.temperature is 1.9 in the receipt, and 1.8 here"), (refused, "'temperature' must be"),
        (output, "broken: the number of its 'outputs'")]
    files = []
    for change, _ in forged:
        receipt = receipt_of(answers)
        change(receipt)
        files.append(write(tmp_path / change.__name__, receipt))
    code, out, err = verify(*files)
    lines = out.splitlines()
    assert code == BROKEN and len(lines) == len(files), out + err
    for (_, text), file, line in zip(forged, files, lines):
        assert line.startswith(f"{file}: ") and text in line
    assert verify(*files[:4])[0] == OTHER_TOKENS


def test_a_changed_receipt_needs_no_model(answers, keys, tmp_path):
    receipt = receipt_of(answers)
    receipt["created"] += 1
    unsigned = write(tmp_path / "unsigned", receipt_of(answers))
    (tmp_path / "changed").write_text(json.dumps(receipt))
    (tmp_path / "none").write_text('{"id": 1}')
    (tmp_path / "text").write_text("data: [DONE]\n\n")
    for name, flags, text in [("changed", [], "broken: its 'digest'"), ("unsigned", ["--public-key", keys[1]], "signature wrong: it is not signed"),
                              ("none", [], "broken: it has no receipt"), ("text", [], "broken: it has no receipt")]:
        code, out, _ = verify(tmp_path / name, flags=flags, model="/nowhere.gguf")
        assert code == BROKEN and text in out, (name, out)
    assert verify(unsigned)[0] == SAME


def test_the_worst_receipt_decides_the_code(answers, tmp_path):
    receipt = receipt_of(answers)
    receipt["fingerprint"]["ranks"] = 2
    code, out, _ = verify(answers / "0-False", write(tmp_path / "other", receipt), tmp_path / "absent")
    assert code == OTHER_ORIGIN and "the same" in out and "ranks is 2" in out


def test_wrong_files_are_named(keys, answers, tmp_path):
    assert verify(tmp_path / "absent")[0] == FAILED
    for flags in (["--public-key", keys[0]], ["--public-key", tmp_path / "absent"]):
        code, _, err = verify(answers / "0-False", flags=flags)
        assert code == FAILED and f"penstock: {flags[1]}" in err
    done = subprocess.run([BINARY, "serve", "--model", MODEL, "--receipt-key", keys[1]], capture_output=True, text=True, timeout=60)
    assert done.returncode == FAILED and "openssl genpkey -algorithm ed25519" in done.stderr
    done = subprocess.run([BINARY, "verify", "--model", MODEL], capture_output=True, text=True, timeout=60)
    assert done.returncode == USAGE and "penstock verify RECEIPT..." in done.stderr


def test_a_batch_gives_receipts(tmp_path):
    lines = [{"custom_id": str(i), "url": path, "body": {**body, "receipt": True}} for i, (path, body) in enumerate(BODIES[:3])]
    (tmp_path / "in").write_text("".join(json.dumps(line) + "\n" for line in lines))
    subprocess.run([BINARY, "batch", "--model", MODEL, "--any-model-name", "--max-model-len", "256", "--kv-cache-memory", "64MiB",
                    "-i", tmp_path / "in", "-o", tmp_path / "out"], check=True, env=environment(), timeout=600)
    receipts = [json.loads(line)["response"]["body"]["receipt"] for line in (tmp_path / "out").read_text().splitlines()]
    (tmp_path / "receipts").write_text("".join(json.dumps(receipt) + "\n" for receipt in receipts))
    code, out, err = verify(tmp_path / "receipts", env={"PENSTOCK_CPU": "plain"})
    assert code == SAME and out.count("the same") == 3, out + err
    assert os.path.basename(out.split(":")[0]) == "receipts"


# ---- adapters -------------------------------------------------------------------------------------------------------

VECTORS = ROOT / "tests/vectors"
BASE = VECTORS / "folders/qwen2"
ADAPTERS = {"eight": VECTORS / "adapters/qwen2-8", "one": VECTORS / "adapters/qwen2-1.gguf"}


def loras(**adapters):
    return [flag for name, path in adapters.items() for flag in ("--lora", f"{name}={path}")]


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """A file with a receipt for each adapter and for the base model, made in one batch with the plain path."""
    from conftest import Server
    folder = tmp_path_factory.mktemp("adapted")
    server = Server("--model", str(BASE), "--max-model-len", "96", "--dtype", "float32", *loras(**ADAPTERS), env={"PENSTOCK_CPU": "plain"})
    try:
        server.wait_until_ready()
        for model in ("eight", "one", NAME):
            done = server.post("/v1/completions", {"model": model, "prompt": [7, 8, 9], "max_tokens": 24, "receipt": True, "seed": 3,
                                                   "stream": model == "one", "ignore_eos": True})
            assert done.status_code == 200, done.text
            (folder / model).write_text(done.text)
    finally:
        server.stop()
    return folder


def verify_adapted(*files, flags=()):
    done = subprocess.run([BINARY, "verify", *map(str, files), "--model", BASE, "--max-model-len", "96", "--dtype", "float32",
                           *map(str, flags)], capture_output=True, text=True, env=environment(), timeout=600)
    return done.returncode, done.stdout, done.stderr


def file_hash(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def folder_hash(path):
    lines = "".join(f"{file_hash(path / name)}  {name}\n" for name in ("adapter_config.json", "adapter_model.safetensors"))
    return hashlib.sha256(lines.encode()).hexdigest()


def test_receipts_of_adapters_state_their_hash_and_hold_elsewhere(adapted):
    code, out, err = verify_adapted(adapted / "eight", adapted / "one", adapted / NAME, flags=loras(**ADAPTERS))
    assert code == SAME and out.count("the same 24 tokens") == 3, out + err
    receipts = {model: json.loads((adapted / model).read_text())["receipt"] for model in ("eight", NAME)}
    assert receipts["eight"]["fingerprint"]["adapter"] == folder_hash(ADAPTERS["eight"])
    assert json.loads(receipts["eight"]["body"])["model"] == "eight" and receipts[NAME]["fingerprint"]["adapter"] is None
    assert file_hash(ADAPTERS["one"]) in (adapted / "one").read_text()
    assert receipts["eight"]["outputs"][0]["ids"] != receipts[NAME]["outputs"][0]["ids"]


def test_another_adapter_is_refused_by_name(adapted, tmp_path):
    for flags, text in [
            (loras(eight=ADAPTERS["one"]), f"adapter 'eight' is {folder_hash(ADAPTERS['eight'])} in the receipt, and {file_hash(ADAPTERS['one'])} here"),
            (loras(one=ADAPTERS["eight"]), "the adapter 'eight' is not given here: add --lora eight=PATH"),
            ([], "the adapter 'eight' is not given here: add --lora eight=PATH")]:
        code, out, err = verify_adapted(adapted / "eight", flags=flags)
        assert code == OTHER_ORIGIN and f"another fingerprint: {text}" in out, out + err
    code, out, err = verify_adapted(adapted / NAME, flags=loras(**{NAME: ADAPTERS["one"]}))
    assert code == OTHER_ORIGIN and f"adapter '{NAME}' is none in the receipt" in out, out + err
    copy = tmp_path / "copy"  # the same content in another place, with other files beside it
    shutil.copytree(ADAPTERS["eight"], copy)
    (copy / "training_args.json").write_text("{}")
    assert verify_adapted(adapted / "eight", flags=loras(eight=copy))[0] == SAME
    code, _, err = verify_adapted(adapted / "eight", flags=loras(eight=tmp_path / "none"))
    assert code in (FAILED, USAGE) and "--lora eight: " in err


def test_a_forged_adapter_is_found(adapted, tmp_path):
    receipt = json.loads((adapted / "eight").read_text())["receipt"]
    other, none, unnamed = (json.loads(json.dumps(receipt)) for _ in range(3))
    other["fingerprint"]["adapter"] = file_hash(ADAPTERS["one"])
    none["fingerprint"]["adapter"] = None
    unnamed["body"] = json.dumps({**json.loads(receipt["body"]), "model": "a\nb"})
    files = [write(tmp_path / "other", other), write(tmp_path / "none", none), write(tmp_path / "unnamed", unnamed)]
    code, out, err = verify_adapted(*files, flags=loras(**ADAPTERS))
    lines = out.splitlines()
    assert code == BROKEN and len(lines) == 3, out + err
    assert "adapter 'eight' is " in lines[0] and "adapter 'eight' is none in the receipt" in lines[1] and "names none" in lines[2]


def test_a_record_of_an_adapters_answer_is_replayed(tmp_path, start):
    body = {"model": "eight", "prompt": [7, 8, 9], "max_tokens": 8}
    tape = tmp_path / "tape"
    server = start("--model", str(BASE), "--max-model-len", "96", "--dtype", "float32", *loras(**ADAPTERS), "--record", str(tape))
    answer = server.post("/v1/completions", body)
    assert answer.status_code == 200 and "receipt" not in answer.json()
    until(lambda: folder_hash(ADAPTERS["eight"]) in tape.read_text())  # a record is written after the last byte of its answer
    replayed = start("--model", str(BASE), "--max-model-len", "96", "--replay", str(tape)).post("/v1/completions", body)
    assert replayed.content == answer.content
