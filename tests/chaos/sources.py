"""Reads the tables of the product's sources, so that a new route, field, keyword or tool format is in the chaos at once."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def read(path):
    return (ROOT / path).read_text()


def found(path, pattern, least):
    """The distinct matches in a file, in order; a table that moved elsewhere fails here instead of being left out."""
    matches = list(dict.fromkeys(re.findall(pattern, read(path))))
    assert len(matches) >= least, f"{path}: {len(matches)} rows match {pattern}; the table has moved or has another form"
    return matches


def routes():
    """{(path, method)} of the server; a path that ends in '/' stands for all paths below it."""
    rows = set(found("server/endpoints/routes.c", r'\{"(/[^"]*)", "([A-Z]+)"', 10))
    apis = found("server/apis/table.c", r"&api_(\w+)", 4)
    files = [str(file.relative_to(ROOT)) for file in (ROOT / "server").glob("*/*.c")]
    paths = [path for file in files for path in found(file, r'\.path = "(/[^"]*)"', 0)]
    assert len(paths) == len(apis), f"{len(apis)} APIs have {len(paths)} paths"
    counts = [path for file in files for path in found(file, r'\.count_path = "(/[^"]*)"', 0)]
    rows |= {(path, "POST") for path in counts}
    for path in paths:
        rows |= {(path, "POST"), (f"{path}/render", "POST")}
    return rows


ROW = r'\{[\s\\]*"(\w+)",[\s\\]*FIELD_'


def served_fields():
    """The names of all fields that some body may have."""
    tables = {"server/openai/internal.h": 60, "server/openai/completions.c": 8, "server/openai/chat.c": 18,
              "server/openai/tokenize.c": 5, "server/anthropic/request.c": 14, "server/responses/request.c": 18,
              "server/ollama/request.c": 14, "server/llama/completion.c": 2, "server/openai/embeddings.c": 9, "server/ollama/embed.c": 4,
              "server/llama/embedding.c": 1, "server/decisions/request.c": 7, "server/decisions/rerank.c": 7,
              "server/decisions/systemone.c": 4, "server/decisions/score.c": 7, "server/openai/classify.c": 8}
    return list(dict.fromkeys(name for path, least in tables.items() for name in found(path, ROW, least)))


def unlisted_fields():
    """Reads of a translated body's members that bypass its table of fields."""
    files = [file for room in ("anthropic", "responses", "ollama", "decisions") for file in (ROOT / "server" / room).glob("*.c")]
    return [f"{file.name}: {text}" for file in files for text in re.findall(r'(?<!fields_)member\([^()]*body, "\w+"', file.read_text())]


def fields():
    """The same with those that are refused by name."""
    return list(dict.fromkeys(served_fields() + found("server/openai/unserved.c", r'\{"(\w+)", [CHT]', 40)))


def keywords():
    """The keywords of JSON Schema that are known."""
    return found("engine/grammar/schema/keywords.c", r'\{"(\$?\w+)", FORM_', 30)


def tool_formats():
    """The first name of each format in which models write calls."""
    return found("server/message/formats.c", r'\n    \{"([\w-]+)[ \w-]*",\s*(?:/\*[^*]*\*/\s*)?\{"', 15)
