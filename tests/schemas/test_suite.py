"""The JSON Schema Test Suite: each case passes, or suite.txt states its result."""
import suite


def test_each_case_passes_or_is_listed(driver):
    counts, lines, wrong = suite.run(driver)
    print(dict(counts))
    assert not wrong, "\n".join(wrong)
    assert suite.LIST.read_text().splitlines()[1:] == lines, "run tests/schemas/suite.py --write, and look at the changes"
    assert counts["not accepted"] > 800 and counts["keys in the schema's order"] > 1000 and counts["keys in another order"] < 15
