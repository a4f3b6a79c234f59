"""Hostile bodies: each place of each valid body with each value, members twice, truncations, bytes changed, and large ones."""
import sources
from cases import Deck, Pairs, Raw, at, places, put, request, write
from routes import MODEL, READS, ROWS, USER, chat, completion

VALUES = [Raw(text) for text in (
    b"null", b"true", b"false", b"0", b"-0", b"-1", b"1", b"1.5", b"1e400", b"-1e400", b"1e-400", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775809", b"18446744073709551616", b"2147483647", b"2147483648", b"-2147483649",
    b"1e308",
    b"0." + b"1" * 400, b"1" * 400, b'""', b'"x"', b'"\\u0000"', b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\ud83d\\ude00"',
    b'"\xff\xfe"',
    b'"\xc3"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"%a"', b'"#/%a"', b'"%s%n"', b'"' + b"x" * 70000 + b'"', b"[]",
    b"{}", b"[null]",
    b"[[]]", b"[{}]", b"[0]", b'["x"]', b'[""]', b"[1,2,3]", b"[" * 70 + b"]" * 70, b"[" * 3000 + b"]" * 3000,
    b'{"a":' * 65 + b"1" + b"}" * 65,
    b'{"":""}', b'{"a":1,"a":2}', b'{"type":5}', b'{"type":"text"}', b"[-1]", b"[4294967296]", b"[299]", b"[298]", b"[1e400]",
    b"NaN", b"Infinity",
    b"01", b"1.", b".5", b"+1", b"'x'", b"tru", b'"\t"', b'"\x00"', b'"\\x"', b'"\\u12"', b"")]
FIELDS = sources.fields()
POSTS = [(name, path, body) for name, method, path, body in ROWS if method == "POST"]
PLACES = [(name, path, body, place) for name, path, body in POSTS for place in places(body)]
MEMBERS = [row for row in PLACES if row[3] and isinstance(row[3][-1], str)]
BASES = [("/v1/completions", completion()), ("/v1/chat/completions", chat()), ("/tokenize", {"prompt": "a"}),
         ("/detokenize", {"tokens": [72]}), ("/api/chat", {"model": MODEL, "messages": USER}),
         ("/api/generate", {"model": MODEL, "prompt": "a"}), ("/api/show", {"model": MODEL}),
         ("/infill", {"input_prefix": "a", "input_suffix": "b"}), ("/apply-template", {"messages": USER}),
         ("/completion", {"prompt": "a", "n_predict": 3}),
         ("/v1/messages", {"model": MODEL, "max_tokens": 9, "messages": USER}),
         ("/v1/responses", {"model": MODEL, "max_output_tokens": 9, "input": "a"}),
         *READS]
TEXTS = [(name, path, write(body)) for name, path, body in POSTS]
CUTS = [(row, n) for row in TEXTS for n in range(len(row[2]))]
BYTES = [bytes([byte]) for byte in b'\x00\t\n "\\{}[]:,-0eE.\x7f\x80\xc0\xff/%'] + [b"", b"\xef\xbb\xbf", b"\\u", b"\\ud800"]


def post(path, body, what):
    return lambda key: request("POST", path, body, key=key), "ask", what


def replaced(i, rng):
    name, path, body, place = PLACES[i // len(VALUES)]
    value = VALUES[i % len(VALUES)]
    return post(path, write(put(body, place, value)), f"{name} {list(place)} = {value[:40]!r}")


def field(i, rng):
    """A field of any API in each body, with each value."""
    i, v = divmod(i, len(VALUES))
    path, body = BASES[i % len(BASES)]
    name = FIELDS[i // len(BASES)]
    return post(path, write({**body, name: VALUES[v]}), f"{path} {name} = {VALUES[v][:40]!r}")


def doubled(i, rng):
    name, path, body, place = MEMBERS[i]
    parent, value = at(body, place[:-1]), rng.choice([at(body, place), *VALUES])
    pairs = list(parent.items())
    pairs.insert(rng.randrange(len(pairs) + 1), (place[-1], value))
    return post(path, write(put(body, place[:-1], Pairs(pairs))), f"{name} {list(place)} twice")


def left_out(i, rng):
    name, path, body, place = MEMBERS[i]
    parent = {key: value for key, value in at(body, place[:-1]).items() if key != place[-1]}
    return post(path, write(put(body, place[:-1], parent)), f"{name} without {list(place)}")


def moved(i, rng):
    """A place holds what another place of the same or another body holds."""
    name, path, body, place = PLACES[i]
    _, _, other, theirs = rng.choice(PLACES)
    return post(path, write(put(body, place, at(other, theirs))), f"{name} {list(place)} from elsewhere")


def truncated(i, rng):
    (name, path, text), n = CUTS[i]
    return post(path, text[:n], f"{name} cut after {n} bytes")


def changed(i, rng):
    (name, path, text), n = CUTS[i]
    for _ in range(rng.choice([1, 1, 2, 5])):
        n = rng.randrange(len(text)) if _ else n
        text = text[:n] + rng.choice(BYTES) + text[n + rng.randrange(3):]
    return post(path, text, f"{name} changed at {n}")


def many(unit, n, start=b"[", end=b"]"):
    return Raw(start + b",".join([unit] * n) + end)


def names(n, form=b'"k%d":%d'):
    return Raw(b"{" + b",".join(form.replace(b"%d", b"%d" % j) for j in range(n)) + b"}")


LARGE = {  # fields of a completion
    "a million ones": {"prompt": many(b"1", 1_000_000)}, "a million ignored": {"metadata": many(b"[]", 1_000_000)},
    "many members": {"metadata": names(60_000)}, "a long prompt": {"prompt": "a " * 900_000},
    "deep": {"metadata": Raw(b"[" * 500_000)}, "deep and closed": {"metadata": Raw(b"[" * 500_000 + b"]" * 500_000)},
    "deep objects": {"metadata": Raw(b'{"a":' * 200_000)}, "prompts": {"prompt": many(b'"a"', 257)},
    "empty prompts": {"prompt": many(b'""', 200_000)},
    "required": {"guided_json": {"required": [f"k{j}" for j in range(20_000)]}},
    "properties": {"guided_json": {"properties": names(6_000, b'"k%d":{"type":"null"}'),
                                   "required": [f"k{j}" for j in range(6_000)]}},
    "enum": {"guided_json": {"enum": list(range(30_000))}},
    "names": {"guided_json": {"propertyNames": {"enum": [f"k{j}" for j in range(20_000)]}}},
    "two enums": {"guided_json": {"allOf": [{"enum": list(range(8_000))}, {"enum": list(range(8_000))}]}},
    "alternatives": {"guided_regex": "|".join(f"w{j}" for j in range(20_000))},
    "choices": {"guided_choice": [f"w{j}" for j in range(20_000)]},
    "counts": {"guided_regex": "(((a{1,99}){1,99}){1,99}){1,99}"},
    "rules": {"guided_grammar": "\n".join(f"r{j} ::= r{j + 1} \"a\"" for j in range(8_000))},
    "deep regex": {"guided_regex": "(" * 100_000},
    "deep schema": {"guided_json": Raw(b'{"items":' * 30_000 + b"{}" + b"}" * 30_000)},
    "bias": {"logit_bias": names(20_000, b'"%d":1')}, "stop ids": {"stop_token_ids": many(b"7", 300_000)},
    "stops": {"stop": many(b'"a"', 300_000)},
    "bad words": {"bad_words": many(b'"the"', 100_000)}, "breakers": {"dry_sequence_breakers": many(b'"a"', 100_000)},
    "stop_regex": {"stop_regex": "(a|b)*c{1000}"}, "tokens": {"allowed_token_ids": many(b"5", 300_000)},
    "a long id": {"request_id": "x" * 500_000},
}


def large(i, rng):
    name = list(LARGE)[i]
    return post("/v1/completions", write({**completion(), **LARGE[name]}), name)


def large_elsewhere(i, rng):
    path, body, what = [
        ("/detokenize", {"tokens": many(b"257", 400_000)}, "many tokens"),
        ("/detokenize", {"tokens": many(b"72", 1_000_000)}, "more tokens"),
        ("/tokenize", {"prompt": "the ant\n" * 200_000}, "a long text"),
        ("/tokenize", {"prompt": "a" * 3_000_000, "return_token_strs": True}, "of one word"),
        ("/v1/chat/completions", chat(messages=many(b'{"role":"user","content":"a"}', 60_000)), "many messages"),
        ("/v1/chat/completions", chat(tools=many(b'{"type":"function","function":{"name":"f"}}', 30_000)), "many tools"),
        ("/v1/chat/completions/render", chat(chat_template_kwargs={"x": many(b"1", 500_000)}), "large kwargs"),
        ("/v1/completions/render", completion(prompt="the " * 100_000, truncate_prompt_tokens=5), "truncated")][i]
    return post(path, write(body), what)


DECKS = [
    Deck("replaced", len(PLACES) * len(VALUES), replaced, 30), Deck("field", len(FIELDS) * len(BASES) * len(VALUES), field, 14),
    Deck("doubled", len(MEMBERS), doubled, 5), Deck("left out", len(MEMBERS), left_out, 3),
    Deck("moved", len(PLACES), moved, 5),
    Deck("truncated", len(CUTS), truncated, 10), Deck("changed", len(CUTS), changed, 14),
    Deck("large", len(LARGE), large, 0.15),
    Deck("large elsewhere", 8, large_elsewhere, 0.05),
]
