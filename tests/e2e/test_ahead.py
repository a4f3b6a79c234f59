"""A model's own layer that guesses ahead (--speculative-config mtp) and EAGLE-3 heads beside a model (eagle3): they change no byte, and their
right guesses save steps."""
import concurrent.futures
import json
import shutil
import struct
import subprocess

import pytest
from conftest import BINARY, EMULATED, ROOT, Server
from test_speculation import ask, counter

FOLDERS = ROOT / "tests/vectors/ahead"
FLAGS = ("--max-num-seqs", "4", "--threads", "1", "--block-size", "64")
PROMPT = [7, 100, 31, 7, 100, 250, 12, 90]
BODIES = [
    {"prompt": PROMPT, "temperature": 0},
    {"prompt": PROMPT * 5, "temperature": 0.9, "top_p": 0.8, "seed": 3},
    {"prompt": PROMPT[:5], "temperature": 1.0, "seed": 5, "n": 3},
    {"prompt": PROMPT * 2, "temperature": 0, "presence_penalty": 0.5, "repetition_penalty": 1.2},
    {"prompt": [1], "temperature": 0, "echo": True, "max_tokens": 10},
]


def mtp(n, method="mtp"):
    return json.dumps({"method": method, "num_speculative_tokens": n})


@pytest.mark.parametrize("name", ["glm4moe", "glm4moe.gguf", "glm4_moe_lite", "deepseek_v3", "deepseek_v3.gguf", "qwen3_5", "qwen3_5.gguf", "qwen3_5_moe", "qwen3_next"])
def test_guesses_change_no_byte(name):
    check_same_bytes(FLAGS, name)


def check_same_bytes(flags, name, **options):
    plain = Server(*flags, model=FOLDERS / name, **options).wait_until_ready()
    bodies = [{"max_tokens": 24, "ignore_eos": True, **body} for body in BODIES]
    wanted = [ask(plain, body) for body in bodies]
    plain.stop()
    guessing = Server(*flags, "--speculative-config", mtp(3), "--always-speculate", model=FOLDERS / name, **options).wait_until_ready()
    assert "guesses tokens beyond the next one, for drafts (mtp)" in guessing.log_tail()
    assert [ask(guessing, body) for body in bodies] == wanted
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        assert list(pool.map(lambda body: ask(guessing, body), bodies)) == wanted
    assert counter(guessing, "spec_decode_num_draft_tokens") > 0
    guessing.stop()


def set_to(tensors, data, name, numbers):
    """Replaces the numbers of a tensor of bfloat16."""
    begin, end = tensors[name]["data_offsets"]
    assert tensors[name]["dtype"] == "BF16" and len(numbers) * 2 == end - begin
    data[begin:end] = b"".join(struct.pack("<f", number)[2:] for number in numbers)


# of a family: the guessing layer's projection, the norm of its embeddings, its last norm, and the gain that means 1
NUMBERED = ("model.layers.3.eh_proj.weight", "model.layers.3.enorm.weight", "model.layers.3.shared_head.norm.weight", 1)
NAMED = ("mtp.fc.weight", "mtp.pre_fc_norm_embedding.weight", "mtp.norm.weight", 0)


def write_certain(folder, name="glm4moe", names=NUMBERED):
    """A checkpoint in which a token determines the next one: no layer adds anything, and the guessing layer passes the
    embedding on. So all its guesses are right."""
    projection, norm, last_norm, one = names
    shutil.copytree(FOLDERS / name, folder)
    path = folder / "model.safetensors"
    raw = bytearray(path.read_bytes())
    start = 8 + struct.unpack("<Q", raw[:8])[0]
    tensors = json.loads(raw[8:start])
    data = raw[start:]
    K = tensors["model.norm.weight"]["shape"][0]
    for name, about in tensors.items():
        if name.endswith(("o_proj.weight", "out_proj.weight", "down_proj.weight")):
            set_to(tensors, data, name, [0] * (about["shape"][0] * about["shape"][1]))
    begin, end = tensors["model.norm.weight"]["data_offsets"]
    own = tensors[last_norm]["data_offsets"]
    data[own[0]:own[1]] = data[begin:end]
    set_to(tensors, data, norm, [one] * K)
    set_to(tensors, data, projection, [float(k == row) for row in range(K) for k in range(2 * K)])
    path.write_bytes(raw[:start] + data)


CERTAIN = {"prompt": [7], "temperature": 0, "max_tokens": 41, "ignore_eos": True}


def check_all_accepted(server):
    """Asks for 41 tokens, which take 1 + 10 steps."""
    names = ("spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens")
    answer = ask(server, CERTAIN)
    assert [counter(server, name) for name in names] == [10, 30, 30]
    server.stop()
    return answer


def test_right_guesses_save_steps(tmp_path):
    write_certain(tmp_path / "certain")
    for method in ("mtp", "glm4_moe_mtp"):
        flags = (*FLAGS, "--speculative-config", mtp(3, method), "--always-speculate")
        check_all_accepted(Server(*flags, model=tmp_path / "certain").wait_until_ready())


def test_right_guesses_of_two_ranks_save_steps(tmp_path):
    write_certain(tmp_path / "certain", "qwen3_5", NAMED)
    flags = (*FLAGS, "--speculative-config", mtp(3), "--always-speculate")
    one, two = [check_all_accepted(Server(*flags, "--tensor-parallel-size", n, model=tmp_path / "certain").wait_until_ready()) for n in "12"]
    assert one == two


def test_guesses_of_two_ranks_change_no_byte():
    flags = (*FLAGS, "--tensor-parallel-size", "2")
    check_same_bytes(flags, "qwen3_5")


GPU = ("--device", "cuda", "--max-num-seqs", "4", "--block-size", "16", "--warm-up")
FLOAT32 = ("--dtype", "float32")  # tensor cores do not take the heads of glm4moe


@pytest.mark.parametrize("name, flags", [("glm4moe", FLOAT32), ("deepseek_v3", ()), ("qwen3_5", ())])
def test_guesses_on_a_gpu_change_no_byte(name, flags):
    check_same_bytes((*GPU, *flags), name, binary=EMULATED)


@pytest.mark.parametrize("name, names, flags", [("glm4moe", NUMBERED, FLOAT32), ("qwen3_5", NAMED, ())])
def test_right_guesses_on_a_gpu_save_steps(tmp_path, name, names, flags):
    write_certain(tmp_path / "certain", name, names)
    drafts = ("--speculative-config", mtp(3), "--always-speculate")
    gpu = check_all_accepted(Server(*GPU, *flags, *drafts, model=tmp_path / "certain", binary=EMULATED).wait_until_ready())
    plain = Server(*GPU, *flags, model=tmp_path / "certain", binary=EMULATED).wait_until_ready()
    assert ask(plain, CERTAIN) == gpu
    plain.stop()


@pytest.mark.parametrize("flags, words", [
    (("--steps-in-flight", "2"), '--steps-in-flight 2 does not work with the method "mtp"'),
    (("--persistent-step",), 'the method "mtp" of --speculative-config'),
    (("--tensor-parallel-size", "2"), 'the layer that guesses ahead of the model "glm4moe"')])
def test_settings_that_guesses_on_a_gpu_lack_are_refused(flags, words):
    done = subprocess.run([EMULATED, "serve", "--model", FOLDERS / "glm4moe", "--port", "0", "--speculative-config", "mtp", "--device",
                           "cuda", *flags], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0 and words in done.stderr, done.stderr


def test_a_model_without_such_a_layer_is_refused():
    done = subprocess.run([BINARY, "serve", "--model", ROOT / "tests/vectors/families/qwen2.gguf", "--port", "0",
                           "--speculative-config", "mtp"], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert '--speculative-config: the method "mtp" needs a layer of the model that guesses ahead' in done.stderr


HEADS = ["eagle_llama", "eagle_qwen3"]


def eagle3(name, n=3):
    return json.dumps({"method": "eagle3", "model": str(FOLDERS / f"{name}_head"), "num_speculative_tokens": n})


@pytest.mark.parametrize("name", HEADS)
def test_guesses_of_a_head_change_no_byte_and_some_are_right(name):
    check_head(FLAGS, name, BODIES)


def test_guesses_of_a_head_on_two_ranks_change_no_byte_and_some_are_right():
    check_head((*FLAGS, "--tensor-parallel-size", "2"), "eagle_llama", BODIES)


def test_guesses_of_a_head_on_a_gpu_change_no_byte_and_some_are_right():
    check_head(GPU, "eagle_llama", [{"prompt": [7], "temperature": 0}, BODIES[2], BODIES[3]], binary=EMULATED)


def check_head(flags, name, bodies, **options):
    plain = Server(*flags, model=FOLDERS / name, **options).wait_until_ready()
    bodies = [{"max_tokens": 24, "ignore_eos": True, **body} for body in bodies]
    wanted = [ask(plain, body) for body in bodies]
    plain.stop()
    drafts = ("--speculative-config", eagle3(name), "--always-speculate")
    server = Server(*flags, *drafts, model=FOLDERS / name, **options).wait_until_ready()
    assert "guesses beyond the next one, for drafts (eagle3)" in server.log_tail()
    assert [ask(server, body) for body in bodies] == wanted
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        assert list(pool.map(lambda body: ask(server, body), bodies)) == wanted
    drafts, accepted = (counter(server, f"spec_decode_num_{kind}_tokens") for kind in ("draft", "accepted"))
    server.stop()
    # the heads were trained on the model's greedy text after 7 (make_eagle.py)
    assert 0 < accepted < drafts


def test_a_trained_head_saves_steps():
    flags = (*FLAGS, "--speculative-config", eagle3("eagle_qwen3"), "--always-speculate")
    server = Server(*flags, model=FOLDERS / "eagle_qwen3").wait_until_ready()
    ask(server, {"prompt": [7], "temperature": 0, "max_tokens": 20, "ignore_eos": True})
    assert counter(server, "spec_decode_num_accepted_tokens") >= 10
    server.stop()


def test_a_head_is_inspected():
    done = subprocess.run([BINARY, "inspect", FOLDERS / "eagle_llama", "--program", "--speculative-config", eagle3("eagle_llama")],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "an EAGLE-3 head of 150 tokens" in done.stdout and "Program of guesses ahead" in done.stdout


def refused(model, head, *flags, method={"method": "eagle3"}):
    config = json.dumps({**method, "model": str(head)})
    done = subprocess.run([BINARY, "serve", "--model", model, "--port", "0", "--speculative-config", config, *flags],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    return done.stderr


def test_a_head_of_another_model_is_refused():
    head = FOLDERS / "eagle_llama_head"
    said = refused(ROOT / "tests/vectors/families/qwen2.gguf", head)
    assert f"{head}/config.json: key hidden_size: the head is for a model with 32, and this model has 64; name the head that was trained" in said
    said = refused(FOLDERS / "eagle_qwen3", FOLDERS / "eagle_qwen3_head", "--tensor-parallel-size", "2")
    assert "--tensor-parallel-size 2 does not divide this model: 4 query heads, 2 key-value heads, 3 key-value heads of the EAGLE-3 head" in said


def test_a_head_without_its_method_is_refused():
    head = FOLDERS / "eagle_llama_head"
    said = refused(FOLDERS / "eagle_llama", head, method={})
    words = 'the folder is an EAGLE-3 head, and no model; name it in --speculative-config with its method, "method": "eagle3", beside the model'
    assert f"{head}/config.json: key architectures: {words}" in said, said


def test_a_head_without_its_ids_is_refused(tmp_path):
    shutil.copytree(FOLDERS / "eagle_llama_head", tmp_path / "head")
    path = tmp_path / "head/model.safetensors"
    raw = path.read_bytes()
    start = 8 + struct.unpack("<Q", raw[:8])[0]
    tensors = json.loads(raw[8:start])
    begin, end = tensors.pop("d2t")["data_offsets"]
    for about in tensors.values():
        if "data_offsets" in about and about["data_offsets"][0] >= end:
            about["data_offsets"] = [place - (end - begin) for place in about["data_offsets"]]
    header = json.dumps(tensors).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + raw[start:start + begin] + raw[start + end:])
    said = refused(FOLDERS / "eagle_llama", tmp_path / "head")
    assert "tensor d2t is missing: it says which of the model's 299 tokens are the 150 of the head (draft_vocab_size)" in said
