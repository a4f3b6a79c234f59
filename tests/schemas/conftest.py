import pytest

from driver import Driver


@pytest.fixture
def driver():
    made = Driver()
    yield made
    made.close()
