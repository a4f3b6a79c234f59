"""Reads what runs of bench/compare.py wrote: a table may be measured in parts."""
import json


def read(paths):
    """The runs, and the first of them with the rows and the tokens of all."""
    runs = []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            runs.append(json.load(f))
    whole = {**runs[0], "rows": [row for run in runs for row in run["rows"]],
             "tokens": {file_type: found for run in runs for file_type, found in run["tokens"].items()}}
    return runs, whole
