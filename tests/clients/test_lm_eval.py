"""An unchanged lm-eval evaluates a model through the server, with the results that it has through transformers.

It has a separate virtual environment (requirements_torch.txt), because torch is large: TORCH_VENV names its folder.
"""
import json
import os
import pathlib
import subprocess

import pytest
from e2e.conftest import MODEL, NAME, ROOT

TASKS = pathlib.Path(__file__).parent / "lm_eval_tasks"
FOLDER = pathlib.Path(os.environ.get("TORCH_VENV", ROOT / "build/clients/torch"))
CONTEXT, MARGIN = 1024, 1e-3  # the context is that of the tests' servers
NAMES = ["penstock_choices", "penstock_rolling", "penstock_generate"]


def run(command):
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OPENAI_API_KEY": "",
                   "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


def evaluate(folder, tasks, *model):
    """{task: {(document, request): response}} of a run of lm-eval's program."""
    run([FOLDER / "bin/lm_eval", "run", "--tasks", ",".join(NAMES), "--include_path", tasks, "--log_samples",
         "--output_path", folder, *model])
    found = {}
    for name in NAMES:
        file, = folder.rglob(f"samples_{name}_*.jsonl")
        samples = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        found[name] = {(sample["doc_id"], i): response[0] for sample in samples for i, response in enumerate(sample["resps"])}
    return found


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """The tasks, with the path of their documents."""
    folder = tmp_path_factory.mktemp("tasks")
    for file in TASKS.glob("*.yaml"):
        text = file.read_text(encoding="utf-8").replace("DOCUMENTS", str(TASKS / "documents.jsonl"))
        (folder / file.name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def right(tasks, tmp_path_factory):
    """Returns the results of lm-eval's transformers backend."""
    folder = tmp_path_factory.mktemp("transformers")
    run([FOLDER / "bin/python", pathlib.Path(__file__).parent / "hf_model.py", MODEL, folder / "model"])
    return evaluate(folder, tasks, "--model", "hf", "--device", "cpu", "--batch_size", "1",
                    "--model_args", f"pretrained={folder}/model,dtype=float32,max_length={CONTEXT - 1}")


def check_same(found, right):
    for task, responses in right.items():
        assert found[task].keys() == responses.keys() and responses
        for key, response in responses.items():
            own = found[task][key]
            if task == "penstock_generate":
                assert own == response
            elif task == "penstock_rolling":
                assert abs(float(own) - float(response)) < MARGIN, (task, key, own, response)
            else:
                assert abs(float(own[0]) - float(response[0])) < MARGIN and own[1] == response[1], (task, key, own, response)


# The tokenizer is the server's (/tokenizer_info, /tokenize); requests are sent one by one, or several at a time.
@pytest.mark.parametrize("how", ["num_concurrent=1", "num_concurrent=4"])
def test_same_as_transformers(start, tasks, right, tmp_path, how, saw):
    server = start("--dtype", "float32")
    found = evaluate(tmp_path, tasks, "--model", "local-completions", "--model_args",
                     f"model={NAME},base_url={server.url}/v1/completions,max_length={CONTEXT},{how}")
    assert server.metric("vllm:request_success_total") > 0
    check_same(found, right)
    saw.works("lm-eval", "`local-completions`: log likelihoods, rolling and generate_until, equal to its transformers backend in "
              "float32 within 0.001", "tokenizer of the server", "one by one and four at once")
