"""The bench's sides without their libraries: worker processes, turns, processor time, and tables."""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import direct  # noqa: E402 (the folder is added first)
import judge  # noqa: E402
import works  # noqa: E402

WORKER = '''
import sys
sys.path.insert(0, {bench!r})
import worker


def run(queues, n_out, shared):
    print("noise of a library")
    requests = [{{"user": user, "start": 0, "times": [1] * n_out, "tokens": [prompt[-1]] * n_out}}
                for user, queue in enumerate(queues) for prompt in queue]
    return {{"requests": requests}}


def refuse():
    raise ValueError("no such thing")


def leave():
    sys.exit(3)


worker.answer({{"load": lambda **settings: {{}}, "prepare": lambda shared: {{}}, "run": run, "refuse": refuse, "leave": leave}})
'''


@pytest.fixture
def worker(tmp_path, monkeypatch):
    folder = tmp_path / "toy" / "bin"
    folder.mkdir(parents=True)
    os.symlink(sys.executable, folder / "python")
    script = tmp_path / "toy_worker.py"
    script.write_text(WORKER.format(bench=direct.HERE), encoding="utf-8")
    monkeypatch.setattr(direct, "FOLDER", str(tmp_path))
    one = direct.Worker("toy", str(script))
    yield one
    one.close()


def test_a_side_runs_a_work_in_its_process(worker):
    side = direct.Direct("toy", worker, model="m", threads=1)
    assert side.prepare(works.STREAM) == {"model": "m", "threads": 1}
    work = works.WARM_UP
    found = side.run(work, 0)
    assert [r["tokens"] for r in found] == [[queue[0][-1]] * work.n_out for queue in work.queues(0)]
    assert side.pids() == [worker.process.pid]


def test_a_refusal_names_the_peer(worker):
    with pytest.raises(RuntimeError, match="toy: no such thing"):
        worker.ask("refuse")
    assert worker.ask("load") == {}


def test_the_end_of_a_process_is_told(worker):
    with pytest.raises(RuntimeError, match="toy's process ended at \"leave\" with code 3"):
        worker.ask("leave")


def test_peers_that_are_not_installed_take_no_part(tmp_path, monkeypatch):
    monkeypatch.setattr(direct, "FOLDER", str(tmp_path))
    assert not direct.available("model", 1)


@pytest.mark.parametrize("flags, least", [({"avx512_bf16"}, {"openvino bf16", "openvino int8 bf16"}), (set(), set())])
def test_openvino_computes_in_float32_too(tmp_path, monkeypatch, flags, least):
    (tmp_path / "openvino" / "bin").mkdir(parents=True)
    (tmp_path / "openvino" / "bin" / "python").touch()
    monkeypatch.setattr(direct, "FOLDER", str(tmp_path))
    monkeypatch.setattr(direct.machine, "cpu_flags", lambda: flags)
    names = set(direct.available("model", 1))
    assert names == {"openvino", "openvino int8"} | least
    assert names <= set(works.ALL)


def test_the_best_peer_judges_a_row():
    values = {"penstock": [30, 30], "openvino": [10, 12], "ctranslate2": [15, 15]}
    row = judge.make_row("C1", "Q4_1", "", works.TOKENS, values, (works.Goal(works.FASTEST, None, (2.5, None)),), "vnni")
    goal, = row["goals"]
    assert (goal["against"], goal["ratio"], goal["reached"]) == ("ctranslate2", 2, "no")
