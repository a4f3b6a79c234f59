"""The program returns all recorded answers (tests/vectors/make_answers.py), byte for byte."""
import sys

from conftest import ROOT

sys.path.insert(0, str(ROOT / "tests/vectors"))
import make_answers  # noqa: E402


def test_answers_are_as_they_were_recorded(start):
    server = start(*make_answers.FLAGS)
    found = make_answers.differences(server.port)
    assert not found, "\n\n".join(found[:make_answers.SHOWN] + [f"{len(found)} answers differ"])
