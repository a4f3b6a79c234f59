"""Schemas that pydantic makes from users' types: their values are accepted, and drawn texts validate."""
import copy
import json

import pydantic
import pytest

import models
from driver import spellings
from oracle import Oracle

DRAWS = 20


def strict(schema):
    """Returns a schema as OpenAI's client sends it: all properties required and no others allowed, $ref without
    siblings."""
    schema = copy.deepcopy(schema)

    def visit(part):
        if isinstance(part, dict):
            if "properties" in part:
                part.update(required=list(part["properties"]), additionalProperties=False)
            part.pop("default", None)
        for item in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            visit(item)

    visit(schema)
    return schema


def check(driver, schema, value):
    result = driver.ask(schema, spellings(value), draws=DRAWS, max_tokens=400, seed=7)
    assert "error" not in result, f"{json.dumps(schema)}: {result}"
    assert all(result["accepted"]), f"{json.dumps(schema)}: {value}"
    drawn = [text for text in result["drawn"] if text is not None]
    for text in drawn:
        assert Oracle(schema).error(text) is None, f"{json.dumps(schema)}: {text}"
    return drawn


@pytest.mark.parametrize("name", models.TYPES)
def test_a_type_is_served(driver, name):
    kind, value = models.TYPES[name]
    adapter = pydantic.TypeAdapter(kind)
    adapter.validate_json(json.dumps(value))
    drawn = check(driver, adapter.json_schema(), value)
    assert len(drawn) > DRAWS // 2
    check(driver, strict(adapter.json_schema()), value)


@pytest.mark.parametrize("name", models.REFUSED)
def test_what_is_not_enforced_is_refused_by_name(driver, name):
    kind, keyword = models.REFUSED[name]
    error = driver.ask(pydantic.TypeAdapter(kind).json_schema())["error"]
    assert f'The schema at "/{keyword}"' in error


@pytest.mark.parametrize("name", models.ANNOTATED)
def test_annotations_do_not_refuse_a_type(driver, name):
    assert "error" not in driver.ask(pydantic.TypeAdapter(models.ANNOTATED[name]).json_schema())
