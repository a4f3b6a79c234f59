"""`penstock batch`: a file of requests in, a file of answers out, the same bytes as over HTTP, also after an interruption."""
import json
import signal
import subprocess
import time

import pytest

from conftest import BINARY, MODEL, NAME, environment

LINES = 48  # in the batch that is interrupted; the first takes longer than all others, on one core several seconds
N_FIRST = 900
COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"


def line(custom_id, body, url=COMPLETIONS):
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def command(source, target, *flags):
    return [BINARY, "batch", "--model", MODEL, "--served-model-name", NAME, "--max-model-len", "1024",
            "--kv-cache-memory", "256MiB", "-i", str(source), "-o", str(target), *flags]


def run(source, target, *flags):
    return subprocess.run(command(source, target, *flags), capture_output=True, text=True, timeout=600,
                          env=environment())


def write(path, lines):
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))


def read(path):
    return [json.loads(one) for one in path.read_text().splitlines()]


@pytest.fixture
def files(tmp_path):
    return tmp_path / "in.jsonl", tmp_path / "out.jsonl"


def test_answers_are_those_of_the_server(server, files):
    source, target = files
    user = [{"role": "user", "content": "Name three colours."}]
    bodies = {
        "greedy": (COMPLETIONS, {"model": NAME, "prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}),
        "drawn": (CHATS, {"model": NAME, "messages": user, "max_tokens": 12, "seed": 5, "n": 3}),
        "stopped \u00e9\n": (COMPLETIONS, {"prompt": ["one two three four", "A B C D"], "max_tokens": 20, "stop": [" five", " E"],
                                           "temperature": 0, "echo": True, "logprobs": 2}),
        "regex": (COMPLETIONS, {"prompt": ["one two three four", "A B C D"], "max_tokens": 20, "stop_regex": "[a-z]ive|[E-G]",
                                "temperature": 0}),
        "refused": (COMPLETIONS, {"prompt": "x", "temperature": 9}),
        "another": (CHATS, {"model": "another", "messages": user}),
    }
    write(source, [line(name, body, url) for name, (url, body) in bodies.items()])
    done = run(source, target)
    assert done.returncode == 0, done.stderr
    assert "answered=6 refused=2" in done.stderr
    answers = {one["custom_id"]: one for one in read(target)}
    assert set(answers) == set(bodies)
    assert len({one["id"] for one in answers.values()}) == len(bodies)
    for name, (url, body) in bodies.items():
        expected, found = server.post(url, body), answers[name]["response"]
        assert answers[name]["error"] is None and found["status_code"] == expected.status_code
        if expected.status_code != 200:
            assert found["body"] == expected.json()
            continue
        assert found["request_id"] == found["body"]["id"]
        for key in ("object", "choices", "model"):
            assert found["body"][key] == expected.json()[key]
        assert found["body"]["usage"]["total_tokens"] == expected.json()["usage"]["total_tokens"]


def test_lines_that_are_no_requests(files):
    source, target = files
    body = {"prompt": "x", "max_tokens": 1}
    write(source, ["\ufeff" + json.dumps(line("a", body)), "", "{broken", "[]", {"url": COMPLETIONS, "body": body},
                   line("a", body), line("url", body, "/v1/images"), {"custom_id": "none", "url": COMPLETIONS},
                   {**line("method", body), "method": "GET"}, line("stream", {**body, "stream": True}), "x" * 3000])
    done = run(source, target, "--max-body-size", "2000")
    assert done.returncode == 0, done.stderr
    found = {one["id"]: one for one in read(target)}
    status = {one["custom_id"]: one["response"]["status_code"] for one in found.values() if one["response"]}
    assert status == {"a": 200, "url": 404, "none": 400, "method": 405, "stream": 400}
    codes = {int(name.removeprefix("batch_req_")): one["error"]["code"] for name, one in found.items() if one["error"]}
    assert codes == {3: "invalid_line", 4: "invalid_line", 5: "invalid_line", 6: "duplicate_custom_id", 11: "invalid_line"}
    assert all(f"Line {number}" in found[f"batch_req_{number}"]["error"]["message"] for number in codes)
    again = run(source, target, "--max-body-size", "2000")
    assert again.returncode == 0 and len(read(target)) == len(found)  # errors are answers too


def choices(path):
    return {one["custom_id"]: one["response"]["body"]["choices"] for one in read(path)}


def answered(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


def break_off(source, target, flags, number):
    """Starts the batch and ends it after some more answers. Returns its exit code and its output."""
    enough = answered(target) + 4
    with subprocess.Popen(command(source, target, *flags), stderr=subprocess.PIPE, env=environment()) as process:
        while process.poll() is None and answered(target) < enough:
            time.sleep(0.005)
        process.send_signal(number)
        said = process.stderr.read().decode()
    return process.returncode, said


def test_a_batch_that_is_broken_off_goes_on(files, tmp_path):
    source, target = files
    whole = tmp_path / "whole.jsonl"
    write(source, [line(f"{i}", {"prompt": f"Story {i}:", "max_tokens": 4 + i % 16 if i else N_FIRST, "ignore_eos": True})
                   for i in range(LINES)])
    flags = ("--seed", "7", "--max-num-seqs", "4", "--threads", "1")
    assert run(source, whole, *flags).returncode == 0
    code, said = break_off(source, target, flags, signal.SIGINT)
    assert code == 1 and "the same command resumes it" in said
    break_off(source, target, flags, signal.SIGKILL)
    before = answered(target)
    assert 8 <= before < LINES
    with target.open("a") as file:
        file.write('{"id":"batch_req_99","custom_id":"to')  # an incomplete line
    done = run(source, target, *flags)
    assert done.returncode == 0 and f"answered={LINES - before} " in done.stderr
    assert choices(target) == choices(whole)


def test_files_that_cannot_be_used(files, tmp_path):
    source, target = files
    write(source, [line("a", {"prompt": "x", "max_tokens": 1})])
    for target_text in ("somebody's notes\n", "somebody's last line"):
        target.write_text(target_text)
        done = run(source, target)
        assert done.returncode == 1 and "was not written by `penstock batch`" in done.stderr
        assert target.read_text() == target_text
    done = run(source, source)
    assert done.returncode == 2 and "two files" in done.stderr
    done = run(tmp_path / "absent", target)
    assert done.returncode == 1 and "No such file" in done.stderr
    done = run(tmp_path, target)
    assert done.returncode == 1 and "directory" in done.stderr
    done = run(source, "/dev/full")
    assert done.returncode == 1 and "No space left" in done.stderr and "incomplete" in done.stderr
