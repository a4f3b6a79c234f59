"""Reads the files that runs of bench/compare.py wrote: a table may be measured in parts, and a row more than once."""
import json


def read(paths):
    """Returns the runs, each with the rows that later runs lack, and the first run with all rows and tokens."""
    runs = []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            runs.append(json.load(f))
    newest = {row["id"]: run for run in runs for row in run["rows"]}
    for run in runs:
        run["rows"] = [row for row in run["rows"] if newest[row["id"]] is run]
    whole = {**runs[0], "rows": [row for run in runs for row in run["rows"]],
             "tokens": {file_type: found for run in runs for file_type, found in run["tokens"].items()}}
    return runs, whole
