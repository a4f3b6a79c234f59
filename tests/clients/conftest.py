"""Programs of others that talk to the built server. Servers are started as in tests/e2e, whose fixtures are here too."""
import pathlib
import sys

TESTS = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "e2e")]
pytest_plugins = ["e2e.conftest"]
