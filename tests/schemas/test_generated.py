"""Random schemas (generate.py) compared with jsonschema: drawn texts validate, and valid values are accepted.

SEEDS=first:last in the environment selects seeds other than those of CI.
"""
import collections
import json
import os
import re

from driver import in_order, order_of, orders, plain, spellings
from generate import Generator
from oracle import Oracle, has_twice

FIRST, LAST = map(int, os.environ.get("SEEDS", "1:2000").split(":"))
VALUES, SPOILED, DRAWS = 4, 8, 4
MAX_ORDERS = 200


def in_another_order(driver, schema, text):
    """In a negated schema the property that breaks it comes first, so another order of the keys may be the accepted one."""
    others = [json.dumps(value, ensure_ascii=False) for value in orders(json.loads(text), MAX_ORDERS)]
    return any(driver.ask(schema, others, draws=0, max_tokens=150, seed=1)["accepted"])


def check(driver, seed, counts):
    """Checks one schema, its instances, changed instances, and texts drawn under its masks."""
    generator = Generator(seed)
    schema = generator.make()
    oracle, order, has_format = Oracle(schema), order_of(schema), '"format"' in json.dumps(schema)
    made = [generator.value(schema) for _ in range(VALUES)]
    values = [in_order(plain(value), order) for value in made + [generator.spoiled(value) for value in made for _ in range(SPOILED // VALUES)]]
    texts = [generator.random.choice(spellings(value)) for value in values]
    result = driver.ask(schema, texts, draws=DRAWS, max_tokens=150, seed=seed)
    place = f"seed {seed}: {json.dumps(schema, ensure_ascii=False)}"
    if "error" in result:
        if re.search("cannot be negated|excludes an array or an object|is not enforced together|is one of more than 3 contains|asks for more than one property", result["error"]):
            counts["refused"] += 1
            return
        counts["no value" if "Nothing can match" in result["error"] else "refused: " + result["error"]] += 1
        assert all(oracle.error(text) for text in texts), f"{place}: {result['error']}"
        return
    counts["schemas"] += 1
    for i, text in enumerate(texts):
        wrong = oracle.error(text)
        counts["invalid" if wrong else "valid"] += 1
        if not wrong and has_format and i >= VALUES and not result["accepted"][i]:
            counts["of a format that jsonschema takes for more"] += 1
            continue
        if not wrong and not result["accepted"][i] and in_another_order(driver, schema, text):
            counts["valid in another order"] += 1
            continue
        assert result["accepted"][i] == (wrong is None), f"{place}: {text}: {wrong or 'valid'}"
    for text in result["drawn"]:
        counts["unfinished" if text is None else "drawn"] += 1
        if text is not None and not re.search(r"[\x1c-\x1f\x85]", json.dumps(json.loads(text), ensure_ascii=False).encode().decode("unicode_escape", "replace")):
            wrong = oracle.error(text)
            counts["drawn with a key twice"] += has_twice(text)
            assert wrong is None, f"{place}: drew {text}: {wrong}"


def test_random_schemas_are_sound_and_complete(driver):
    counts = collections.Counter()
    for seed in range(FIRST, LAST + 1):
        check(driver, seed, counts)
    print(json.dumps(counts, indent=1))
    n = LAST - FIRST + 1
    assert counts["valid in another order"] < 0.01 * counts["valid"]
    assert counts["schemas"] > 0.9 * n and counts["valid"] > 4 * n and counts["invalid"] > 3 * n and counts["drawn"] > 2 * n
