"""Other projects' programs that talk to the built server. Servers are started as in tests/e2e, whose fixtures are here
too.

With `--seen FILE` a complete run without failures writes the results of its tests there (compatibility.py).
"""
import json
import pathlib
import sys

import pytest

TESTS = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "e2e")]
pytest_plugins = ["e2e.conftest"]

from compatibility import Saw  # noqa: E402

seen = []


def pytest_addoption(parser):
    parser.addoption("--seen", metavar="FILE", help="file for the records of the tests")


@pytest.fixture
def saw(request):
    """The results of a test count if the test passes."""
    return Saw(lambda one: request.node.user_properties.append(("saw", one)))


def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed:
        seen.extend(value for name, value in report.user_properties if name == "saw")


def pytest_sessionfinish(session, exitstatus):
    path = session.config.getoption("--seen")
    if path and exitstatus == 0:
        pathlib.Path(path).write_text(json.dumps(seen), encoding="utf-8")
