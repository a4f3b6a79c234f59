"""jsonschema as an oracle: numbers are exact decimals on both sides, formats are checked."""
import decimal
import fractions
import json

import jsonschema

DRAFT = jsonschema.Draft202012Validator


def multiple_of(validator, divisor, instance, schema):
    if validator.is_type(instance, "number") and fractions.Fraction(instance) % fractions.Fraction(divisor) != 0:
        yield jsonschema.ValidationError(f"{instance} is not a multiple of {divisor}")


EXACT = jsonschema.validators.extend(DRAFT, {"multipleOf": multiple_of})


def read(text):
    return json.loads(text, parse_float=decimal.Decimal)


class Oracle:
    """Decides whether a JSON text matches a schema; repeated keys are not allowed."""

    def __init__(self, schema):
        self.validator = EXACT(read(json.dumps(schema)), format_checker=DRAFT.FORMAT_CHECKER)

    def error(self, text):
        """Returns the first error, or None."""
        return next((error.message for error in self.validator.iter_errors(read(text))), None)


def has_twice(text):
    """Does an object of the text contain a key twice?"""
    found = []
    json.loads(text, object_pairs_hook=lambda pairs: found.append(len(pairs) > len(dict(pairs))) or dict(pairs))
    return any(found)
