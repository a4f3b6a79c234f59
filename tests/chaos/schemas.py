"""Hostile schemas, regular expressions, grammars and tags, in every field that takes one."""
import json
import string

import sources
from bodies import post
from cases import Deck, Raw, write
from routes import GBNF, TOOL, chat, completion, tag

V36 = [Raw(text) for text in (b"null", b"true", b"0", b"-1", b"1", b"2.5", b"1e400", b"9223372036854775808", b'""', b'"x"',
                              b'"object"', b'"string"',
                              b'"integer"', b'"[a-z]+"', b'"("', b'"date"', b'"#"', b'"#/%a"', b'"#/%"', b'"#/$defs/a"',
                              b'"#/properties/a/%61%zz"',
                              b"[]", b"{}", b"[5]", b'["a"]', b'["string","null"]', b"[{}]", b"[[1],{}]", b'{"a":{}}',
                              b'{"a":5}',
                              b'{"a":{"$ref":"#"}}', b'{"type":"string"}', b'{"$ref":"#"}', b'{"required":[5]}', b'["a","a"]',
                              b'{"type":"array","items":{"$ref":"#"}}')]
assert len(V36) == 36
UNKNOWN = ["not", "if", "contains", "$dynamicRef", "dependentRequired", ""]
SPOTS = {  # where in a schema the keyword stands
    "root": lambda s: s, "property": lambda s: {"type": "object", "properties": {"a": s}, "required": ["a"]},
    "beside properties": lambda s: {"type": "object", "properties": {"a": {}, "b": {"type": "integer"}}, **s},
    "required and not a property": lambda s: {"properties": {"b": s}, "required": ["a", "b"]},
    "items": lambda s: {"type": "array", "items": s}, "anyOf": lambda s: {"anyOf": [{"type": "null"}, s]},
    "allOf": lambda s: {"allOf": [{"type": ["object", "string", "integer"]}, s]},
    "definition": lambda s: {"$ref": "#/$defs/a", "$defs": {"a": s}},
    "pattern": lambda s: {"patternProperties": {"^a": s}}, "additional": lambda s: {"additionalProperties": s,
                                        "properties": {"b": {"const": 1}}},
    "array": lambda s: {"type": "array", "minItems": 1, "maxItems": 2, **s},
    "string": lambda s: {"type": "string", "maxLength": 5, **s},
    "number": lambda s: {"type": "number", "minimum": -5, **s}}


def with_tool(schema, **fields):
    return "/v1/chat/completions", chat(tools=[{**TOOL, "function": {**TOOL["function"], "parameters": schema}}],
                                        **{"max_tokens": 3, **fields})


def complete(**fields):
    return "/v1/completions", completion(**{**fields, "max_tokens": 3})


def styled(name):
    return lambda s: complete(structural_tag=tag({"type": "json_schema", "style": name, "json_schema": s}))


HOLDERS = {  # the field that holds the schema; the first is drawn most
    "guided_json": lambda s: complete(guided_json=s), "as a text": lambda s: complete(guided_json=write(s).decode("latin-1")),
    "json_schema": lambda s: complete(json_schema=s), "structured_outputs": lambda s: complete(structured_outputs={"json": s}),
    "response_format": lambda s: complete(response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": s}}),
    "of a chat": lambda s: ("/v1/chat/completions", chat(max_tokens=3,
                                        response_format={"type": "json_schema", "json_schema": {"schema": s}})),
    **{f"style {name}": styled(name) for name in ("json", "qwen_xml", "glm_xml", "seed_xml", "minimax_xml", "param_xml", "deepseek_xml", "xtml", "elements", "gemma",
         "step_xml", "solar", "hunyuan3_xml", "hunyuan4_xml", "atem_xml", "functiongemma",
         "python", "unknown")},
    "in a tag": lambda s: complete(structural_tag=tag({"type": "tag", "begin": "<",
                                        "content": {"type": "json_schema", "json_schema": s}, "end": ">"})),
    "older tag": lambda s: complete(structural_tag={"triggers": ["<"],
                                        "structures": [{"begin": "<f>", "schema": s, "end": "</f>"}]}),
    "tools auto": with_tool, "tools required": lambda s: with_tool(s, tool_choice="required"),
    "tool by name": lambda s: with_tool(s, tool_choice={"type": "function", "function": {"name": "f"}}),
    "render": lambda s: ("/v1/chat/completions/render", with_tool(s)[1])}
KEYWORDS = sources.keywords() + UNKNOWN
FORMATS = ["date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "base64", "ipv4network",
           "path", "nonsense"]


def keyword(i, rng):
    """Each keyword with each of 36 values, in each spot of a schema, in each field that holds one."""
    i, v = divmod(i, len(V36))
    i, k = divmod(i, len(KEYWORDS))
    holder, spot = divmod(i, len(SPOTS))
    path, body = list(HOLDERS.values())[holder](list(SPOTS.values())[spot]({KEYWORDS[k]: V36[v]}))
    return post(path, write(body), f"{list(HOLDERS)[holder]}, {list(SPOTS)[spot]}: {KEYWORDS[k]} = {V36[v].decode()}")


def random_schema(rng, depth=0):
    if depth > 3 or rng.random() < 0.15:
        return rng.choice([*V36, {"type": "string", "format": rng.choice(FORMATS)},
                           {"type": "integer", "minimum": rng.randrange(-9, 99)}])
    found = {}
    for _ in range(rng.randrange(1, 5)):
        word = rng.choice(KEYWORDS[:33])
        below = [random_schema(rng, depth + 1) for _ in range(rng.randrange(1, 3))]
        found[word] = rng.choice([rng.choice(V36), below[0], below, {f"k{j}": one for j, one in enumerate(below)}])
    return found


def schema(i, rng):
    name = rng.choice(list(HOLDERS))
    path, body = HOLDERS[name](random_schema(rng))
    return post(path, write(body), name)


TOKENS = ["(", ")", "[", "]", "{", "}", "{3,1}", "{0}", "{1,5}", "{,}", "*", "+", "?", "|", "^", "$", "\\", ".", "\\d", "\\pL",
          "\\p{Greek}", "\\x", "\\x{110000}",
          "[^a]", "[z-a]", "[[:alpha:]]", "(?i)", "(?=a)", "(?P<n>", "\\1", "\\b", "\\Qa", "é", "\U0001f600", "a-", "-", "\n",
          "\\u00e9", "[\\]", "(?:"]
REGEXES = ["a[0-9]{1,3}(b|cd)*", "^[a-z]+@[a-z]+\\.(com|org)$", "(?i)yes|no", "\\d{4}-\\d\\d-\\d\\d", "[^\\n\"]*x",
           "(a|(b|(c|d)*)+)?"]
LARK = 'start: item ("," item)*\nitem: /[a-z]+/i | INT | "x"i ~ 1..3\n%import common.INT\n'
EBNF = "root ::= ('a' | \"b\") rest? ; \nrest ::= [c-f]* root"
PIECES = ["::=", ":", "|", "(", ")", "[", "]", "\"", "'", "/", "root", "start", "%import common.X", "%ignore WS", "~ 2..1", "*",
          "+", "?", "{2}", "{0,99999}",
          "\n", "#", "//", "..", "\\", "\\x4", "[^", "[a-", "rest", "-> a", "!", "é", "", "<[5]>", "_", ".2:", "\"\"", "[]"]


def mutated(text, pieces, rng):
    for _ in range(rng.choice([1, 1, 2, 3, 6])):
        n = rng.randrange(len(text) + 1)
        text = text[:n] + rng.choice([*pieces, rng.choice(string.printable)]) + text[n + rng.choice([0, 0, 1, 2, 9]):]
    return text


REGEX_HOLDERS = [lambda r: complete(guided_regex=r), lambda r: complete(structured_outputs={"regex": r}),
                 lambda r: complete(stop_regex=r),
                 lambda r: complete(stop_regex=[r, "a"]), lambda r: complete(guided_json={"type": "string", "pattern": r}),
                 lambda r: complete(guided_json={"patternProperties": {r: {}}}),
                 lambda r: complete(structural_tag=tag({"type": "regex", "pattern": r})),
                 lambda r: complete(guided_grammar=f"start: /{r}/"),
                 lambda r: complete(structural_tag=tag({"type": "any_text", "not_at_start": r}))]
GRAMMAR_HOLDERS = [lambda g: complete(guided_grammar=g), lambda g: complete(grammar=g),
                   lambda g: complete(structured_outputs={"grammar": g}),
                   lambda g: complete(structural_tag=tag({"type": "grammar", "grammar": g}))]


def regex(i, rng):
    text = mutated(rng.choice(REGEXES), TOKENS, rng)
    path, body = rng.choice(REGEX_HOLDERS)(text)
    return post(path, write(body), json.dumps(text))


def grammar(i, rng):
    text = mutated(rng.choice([GBNF, LARK, EBNF]), PIECES, rng)
    path, body = rng.choice(GRAMMAR_HOLDERS)(text)
    return post(path, write(body), json.dumps(text[:80]))


DECKS = [Deck("keyword", len(HOLDERS) * len(SPOTS) * len(KEYWORDS) * len(V36), keyword, 40),
         Deck("schema", 200_000, schema, 20),
         Deck("regex", 200_000, regex, 10), Deck("grammar", 200_000, grammar, 10)]
