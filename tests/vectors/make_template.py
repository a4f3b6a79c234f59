"""Makes tests/vectors/template.json: templates, and their output from Python's jinja2 in the setup of transformers.

    python tests/vectors/make_template.py            (needs transformers and jinja2; see "made_with" in the file)

Each template of `template_cases` is rendered for one or more inputs. The expected value is the text, or null if
rendering or compiling fails. The tests require equality in all of them.
"""

import json
import pathlib
import sys

import jinja2
import transformers
from transformers.utils.chat_template_utils import render_jinja_template

from template_cases import CASES, INPUTS


def render(template, given):
    try:
        extra = dict(given.get("extra", {}))
        for name in ("bos_token", "eos_token"):
            if name in given:
                extra.setdefault(name, given[name])
        rendered, _ = render_jinja_template(
            conversations=[given["messages"]],
            tools=given.get("tools"),
            documents=given.get("documents"),
            chat_template=template,
            add_generation_prompt=given.get("add_generation_prompt", False),
            continue_final_message=given.get("continue_final_message", False),
            **extra,
        )
        return rendered[0]
    except Exception as error:  # any error is an expected outcome
        return None, type(error).__name__, str(error)


def main():
    cases = []
    show = "--show" in sys.argv
    for template, inputs in CASES:
        expected = {}
        for name in inputs:
            result = render(template, INPUTS[name])
            if isinstance(result, tuple):
                if show:
                    print(repr(template)[:150], name, result[1], result[2][:80])
                result = None
            expected[name] = result
        cases.append({"template": template, "expected": expected})
    made_with = f"jinja2 {jinja2.__version__}, transformers {transformers.__version__}"
    out = {"made_by": "tests/vectors/make_template.py", "made_with": made_with, "inputs": INPUTS, "cases": cases}
    path = pathlib.Path(__file__).with_name("template.json")
    path.write_text(json.dumps(out, ensure_ascii=False, indent=0) + "\n")
    n = sum(len(case["expected"]) for case in cases)
    n_errors = sum(value is None for case in cases for value in case["expected"].values())
    print(f"{len(cases)} templates, {n} renders, {n_errors} of them errors")


main()
