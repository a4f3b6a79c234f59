"""Makes tests/vectors/parsers.jsonl: answers in the forms that vLLM's parsers of tool calls and reasoning are tested with.

    python tests/vectors/make_parsers.py

Each line has the parsers' names (or null), an answer's text, and the message in it: R{reasoning} C{content} name(arguments);
the schemas of the parameters of the tool "f", or null; and whether the prompt ends inside reasoning. The forms follow the public
tests of vLLM, folders tests/tool_parsers, tests/tool_use, tests/reasoning and tests/parser; texts and results are our own.
docs/api.md lists the rules that differ.
"""
import json
import pathlib

TYPES = '{"s": "hi", "i": 42, "f": 3.14, "b": true, "n": null, "a": ["x", "y"], "o": {"k": "v"}, "e": [], "d": {}}'
ESCAPES = '{"q": "say \\"hi\\"", "p": "C:\\\\a", "l": "1\\n2", "u": "🎉 北京"}'
DEEP = '{"1": {"2": {"3": {"v": 123}}}}'
CITY, ZONE = '{"city": "Tokyo"}', '{"zone": "Asia/Tokyo"}'
ROWS = []


def row(tools, text, message, reasoning=None, of=None, is_open=False):
    ROWS.append({"tools": tools, "reasoning": reasoning, "text": text, "message": message, "of": of, "is_open": is_open})


def named(name, arguments, key="arguments"):
    return '{"name": "%s", "%s": %s}' % (name, key, arguments)


# ---- name and arguments in one object ---------------------------------------------------------------------------------------------

OBJECTS = {  # the texts before, between and after the objects, and the key of the arguments
    "hermes": ("<tool_call>\n", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>", "arguments"),
    "granite": ("<|tool_call|> [\n  ", ",\n  ", "\n]", "arguments"),
    "granite-20b-fc": ("<function_call> ", "\n<function_call> ", " ", "arguments"),
    "mistral": ("[TOOL_CALLS] [", ", ", "]", "arguments"),
    "phi4_mini_json": ("functools[\n  ", ",\n  ", "\n]", "arguments"),
    "jamba": (" <tool_calls>[\n    ", ",\n    ", "\n]</tool_calls>", "arguments"),
    "hunyuan_a13b": ("<tool_calls>[", ", ", "]</tool_calls>", "arguments"),
    "minimax": ("<tool_calls>\n", "\n", "\n</tool_calls>", "arguments"),
    "nemotron_json": ("<TOOLCALL>[", ", ", "]</TOOLCALL>", "arguments"),
    "llama3_json": ("", "; ", "", "parameters"),
    "ernie45": ("<tool_call>\n", "\n</tool_call>\n<tool_call>\n", "\n</tool_call>\n", "arguments"),
    "longcat": ("<longcat_tool_call>", "</longcat_tool_call>\n<longcat_tool_call>", "</longcat_tool_call>", "arguments"),
    "internlm": ("<|action_start|><|plugin|>", "<|action_end|>\n<|action_start|><|plugin|>", "<|action_end|>", "parameters"),
    "gigachat3": ("<|function_call|>", "<|function_call|>", "", "arguments"),
    "xlam": ("[", ", ", "]", "arguments"),
}


def objects():
    """The cases that vLLM tries with each of these parsers."""
    for tools, (before, between, after, key) in OBJECTS.items():
        def run(*calls):
            return before + between.join(named(name, arguments, key) for name, arguments in calls) + after
        row(tools, "No call here.", "C{No call here.}")
        for calls in ([("w", CITY)], [("w", CITY), ("t", ZONE)], [("f", TYPES)], [("refresh", "{}")], [("f", ESCAPES)], [("c", DEEP)],
                      [("a", "{}"), ("b", '{"x": 42}')]):
            row(tools, run(*calls), "".join(f"{name}({arguments})" for name, arguments in calls))
        if tools not in ("llama3_json", "xlam"):
            row(tools, "I look. " + run(("w", CITY)).lstrip(), f"C{{I look.}}w({CITY})")


def other_objects():
    city = named("w", CITY)
    row("hermes", "<tool_call>\n" + city, f"w({CITY})")
    row("hermes", "<tool_call>\n" + city[:-1], "C{<tool_call>\n" + city[:-1] + "}")
    row("granite", f"<tool_call> [{city}]", f"w({CITY})")
    row("granite", '<tool_call> [{\n  "arguments": %s,\n  "name": "w"\n}]' % CITY, f"w({CITY})")
    row("granite", f"I look.\n<|tool_call|> [{city}]\nThen more.", f"C{{I look.\nThen more.}}w({CITY})")
    row("granite", "<|tool_call|> " + city, "C{<|tool_call|> " + city + "}")
    row("nemotron_json", f"<TOOLCALL> [{city}] </TOOLCALL>", f"w({CITY})")
    row("mistral", '[TOOL_CALLS] [{"arguments":{"name": "John"}, "name": "age"}]', 'age({"name": "John"})')
    row("mistral", f"Hello[TOOL_CALLS] [{city}]\nmore", f"C{{Hello\nmore}}w({CITY})")
    row("mistral", '[TOOL_CALLS]add_this{"a": 3.5, "b": 4}[TOOL_CALLS]mul{"a": 3}', 'add_this({"a": 3.5, "b": 4})mul({"a": 3})')
    row("mistral_v11", f"[TOOL_CALLS]w[ARGS]{CITY}[TOOL_CALLS]t[CALL_ID]abcDEF123[ARGS]{ZONE}", f"w({CITY})t({ZONE})")
    row("phi4_mini_json", "functools[] This is text", "C{functools[] This is text}")
    row("phi4_mini_json", "functools[ text ]", "C{functools[ text ]}")
    row("phi4_mini_json", f"I look.\nfunctools[{city}]\nMore?", f"C{{I look.\nMore?}}w({CITY})")
    row("minimax", "<tool_calls>\n" + city, f"w({CITY})")
    row("minimax", '<tool_calls>\n{\n  "name": "w",\n  "arguments": %s\n}\n</tool_calls>' % CITY, f"w({CITY})")
    thought = f"So. <tool_calls>\n{named('x', CITY)}\n</tool_calls> No."
    row("minimax", f"<think>{thought}</think>\n\nI look. <tool_calls>\n{city}\n</tool_calls>", f"R{{{thought}}}C{{I look.}}w({CITY})", "qwen3")
    row("apertus", f'I look. <|tools_prefix|>[{{"w": {CITY}}}, {{"t": {ZONE}}}]<|tools_suffix|>', f"C{{I look.}}w({CITY})t({ZONE})")
    for text in (f'<|tools_prefix|>[{{"w": {CITY}}}]', f'<|tools_prefix|>[{{"w": {CITY}', f'<|tools_prefix|> [{{"w": {CITY}}}] <|tools_suffix|> '):
        row("apertus", text, f"w({CITY})")
    foo, bar = ('    {"tool_call_id": "%d", "tool_name": "%s", "parameters": %s}' % call for call in ((0, "foo", CITY), (1, "bar", '{"x": 42}')))
    row("cohere2", f"<|START_THINKING|> I call<|END_THINKING|><|START_ACTION|>\n[\n{foo}\n]\n<|END_ACTION|>", f"R{{I call}}foo({CITY})", "cohere2")
    row("cohere2", f"<|START_THINKING|>x<|END_THINKING|><|START_ACTION|>\n[\n{foo},\n{bar}\n]\n<|END_ACTION|>", f'R{{x}}foo({CITY})bar({{"x": 42}})', "cohere2")


def llama():
    first, second = named("w", CITY, "parameters"), named("t", ZONE, "parameters")
    for separator in (";", ";\n", "\n", " ; ", "; ", "\n\n"):
        row("llama3_json", first + separator + second, f"w({CITY})t({ZONE})")
    row("llama3_json", first + " I used {w} here.", f"C{{I used {{w}} here.}}w({CITY})")
    row("llama3_json", first + "\nThe arguments are " + CITY, f"C{{The arguments are {CITY}}}w({CITY})")
    row("llama3_json", '{"parameters": {}}', 'C{{"parameters": {}}}')
    row("llama3_json", '{"name": "w", "parameters": {no json}', 'C{{"name": "w", "parameters": {no json}}')
    braces = '{"q": "a {b} [c]", "n": {"i": "{"}}'
    row("llama3_json", named("w", braces), f"w({braces})")


# ---- arguments in Python ----------------------------------------------------------------------------------------------------------


def python():
    person = "u(name='Jo Doe', age=37, at={'city': 'SF', 'st': 'CA'}, role=None, ok=True, l=['J', 'K'])"
    read = 'u({"name": "Jo Doe", "age": 37, "at": {"city": "SF", "st": "CA"}, "role": null, "ok": true, "l": ["J", "K"]})'
    for tools, before, between, after in (("pythonic", "[", ", ", "]"), ("llama4_pythonic", "<|python_start|>[", ", ", "]<|python_end|>"),
                                          ("lfm2", "<|tool_call_start|>[", ", ", "]<|tool_call_end|>"),
                                          ("olmo3", "<function_calls>", "\n", "</function_calls>")):
        row(tools, "How can I help?", "C{How can I help?}")
        for call, message in ((person, read), ("w()", "w({})"), ("d(x={}, y=[])", 'd({"x": {}, "y": []})'),
                              ("w(city='Martha\\'s', m='\\\"cool\\\"')", 'w({"city": "Martha\'s", "m": "\\"cool\\""})'),
                              ("x(c='grep -F \"]\" log')", 'x({"c": "grep -F \\"]\\" log"})'), ("x(c='a\nb')", 'x({"c": "a\\nb"})'),
                              ("f(x=null, y=true)", 'f({"x": null, "y": true})')):
            row(tools, before + call + after, message)
        row(tools, before + between.join(["w(city='SF')", person, "t()"]) + after, 'w({"city": "SF"})' + read + "t({})")
    row("pythonic", "[w(city='LA',m='C'),u(age=9)]", 'w({"city": "LA", "m": "C"})u({"age": 9})')
    row("pythonic", "[f(a='x 'y')]", "C{[f(a='x 'y')]}")
    row("llama4_pythonic", "<|python_start|>[w(city='LA'), u(age=9)]", 'w({"city": "LA"})u({"age": 9})')
    row("lfm2", "<|tool_call_start|> [w(id='1')]<|tool_call_end|>", 'w({"id": "1"})')
    row("lfm2", "<|tool_call_start|>[w(id='1')]<|tool_call_end|>\nChecking.", 'C{Checking.}w({"id": "1"})')
    row("lfm2", "<|tool_call_start|>[shop.order(l=[{'n': 'a', 'q': 2}])]<|tool_call_end|>", 'shop.order({"l": [{"n": "a", "q": 2}]})')


# ---- parts between tokens ---------------------------------------------------------------------------------------------------------


def kimi():
    def run(*calls):
        parts = (f"<|tool_call_begin|>{name} <|tool_call_argument_begin|>{arguments}<|tool_call_end|>" for name, arguments in calls)
        return "<|tool_calls_section_begin|>" + "".join(parts) + "<|tool_calls_section_end|>"
    row("kimi_k2", "I check. " + run(("functions.w:0", CITY)), f"C{{I check.}}w({CITY})")
    row("kimi_k2", run(("functions.w:0", CITY), ("functions.n:1", ZONE), ("functions.s:2", ESCAPES)), f"w({CITY})n({ZONE})s({ESCAPES})")
    for name, arguments in (("functions.h:0", '{"h": "<div>c</div>"}'), ("functions.h:0", '{\n  "n": "t",\n  "v": 123\n}'), ("h:0", CITY),
                            ("functions.h:0", "{}")):
        row("kimi_k2", run((name, arguments)), f"h({arguments})")


def deepseek():
    calls, end, call, done, after = (f"<｜tool▁{name}｜>" for name in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep"))
    text = f'text{calls}{call}foo{after}{{"x":1}}{done}{call}bar{after}{{"y":2}}{done}{end} later'
    row("deepseek_v31", text, 'C{text later}foo({"x":1})bar({"y":2})')
    for text in (f"I look.{calls}w", f'{calls}foo{after}{{"x":1}}{end}'):
        row("deepseek_v31", text, f"C{{{text}}}")
    row("deepseek_v3", f'text{calls}{call}function{after}foo\n```json\n{{"x":1}}\n```{done}{end}', 'C{text}foo({"x":1})')
    for tools, tag in (("deepseek_v32", "function_calls"), ("deepseek_v4", "tool_calls")):
        def run(*calls):
            return f"<｜DSML｜{tag}>\n" + "\n".join(calls) + f"\n</｜DSML｜{tag}>"

        def invoke(name, *parameters):
            inner = "".join(f'<｜DSML｜parameter name="{key}" string="{flag}">{value}</｜DSML｜parameter>\n' for key, flag, value in parameters)
            return f'<｜DSML｜invoke name="{name}">\n{inner}</｜DSML｜invoke>'
        row(tools, run(invoke("t")), "t({})")
        row(tools, "Sure! " + run(invoke("w", ("l", "true", "SF"), ("d", "true", "2024-01-16"))), 'C{Sure!}w({"l": "SF", "d": "2024-01-16"})')
        row(tools, run(invoke("w", ("l", "true", "SF")), invoke("w", ("l", "true", "NY"))), 'w({"l": "SF"})w({"l": "NY"})')
        values = (("on", "true"), ("n", "42"), ("r", "3.14"), ("t", '["a", "b"]'), ("m", '{"k": 1}'))
        row(tools, run(invoke("x", *((key, "false", value) for key, value in values))),
            'x({"on": true, "n": 42, "r": 3.14, "t": ["a", "b"], "m": {"k": 1}})')


def gemma():
    def call(name, arguments):
        return f"<|tool_call>call:{name}{{{arguments}}}<tool_call|>".replace('"', '<|"|>')
    row("gemma4", "I look. " + call("w", 'l:"Paris, France",u:"c"'), 'C{I look.}w({"l": "Paris, France", "u": "c"})')
    row("gemma4", call("x", 'n:{i:"v"},l:["a]b",42,true,3.14]'), 'x({"n": {"i": "v"}, "l": ["a]b", 42, true, 3.14]})')
    row("gemma4", call("x", "a:true,c:42,s:108.2,m:null"), 'x({"a": true, "c": 42, "s": 108.2, "m": null})')
    row("gemma4", call("get-w", 'l:"L"') + call("w.get", ""), 'get-w({"l": "L"})w.get({})')
    row("gemma4", '<|tool_call>call:w{l:<|"|>London', 'C{<|tool_call>call:w{l:<|"|>London}')
    row("gemma4", "<|channel>thought\nA\nB<channel|>Final", "R{A\nB}C{Final}", "gemma4")
    row("gemma4", "<|channel>thought\n<channel|>", "", "gemma4")


def harmony():
    start = "<|start|>assistant"
    call = start + '<|channel|>commentary to=functions.w <|constrain|>json<|message|>{\n"l": "T"\n}<|call|>'
    row("openai", "<|channel|>final<|message|>This is a test<|return|>", "C{This is a test}", "openai_gptoss")
    row("openai", "<|channel|>analysis<|message|>User asks.<|end|>" + call, 'R{User asks.}w({\n"l": "T"\n})', "openai_gptoss")
    row("openai", f"<|channel|>analysis<|message|>A<|end|>{start} to=functions.w<|channel|>commentary json<|message|>{CITY}<|call|>{start}"
        f"<|channel|>commentary to=functions.u<|message|>{{}}<|call|>{start}<|channel|>final<|message|>Done.<|return|>",
        f"R{{A}}C{{Done.}}w({CITY})u({{}})", "openai_gptoss")


# ---- parameters as elements -------------------------------------------------------------------------------------------------------


def qwen():
    def call(name, *parameters):
        inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
        return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"
    for tools in ("qwen3_coder", "qwen3_xml"):
        row(tools, "Sure!" + call("w", ("city", "Dallas"), ("unit", "f")), 'C{Sure!}w({"city": "Dallas", "unit": "f"})')
        row(tools, call("a", ("s", "rect"), ("d", '{"w": 10, \n "h": 20}'), ("p", "2")), 'a({"s": "rect", "d": {"w": 10, \n "h": 20}, "p": 2})')
        row(tools, call("w", ("c", "D")) + "\n" + call("w", ("c", "O")), 'w({"c": "D"})w({"c": "O"})')
        row(tools, "<function=w>\n<parameter=c>\nD\n</parameter>\n</function>", 'w({"c": "D"})')
        row(tools, call("t", ("i", "42"), ("f", "3.14"), ("b", "true"), ("s", "a b"), ("o", '{"k": "v"}')),
            't({"i": 42, "f": 3.14, "b": true, "s": "a b", "o": {"k": "v"}})')
    read = call("bash", ("command", "cat /etc/hosts"))
    for tools, text in (("qwen3_coder", read), ("hermes", "<tool_call>\n" + named("bash", CITY) + "\n</tool_call>\n")):
        arguments = '{"command": "cat /etc/hosts"}' if tools == "qwen3_coder" else CITY
        row(tools, f"<think>I need the file.\n\n{text}", f"R{{I need the file.\n\n{text.strip()}}}bash({arguments})", "qwen3")
        row(tools, f"<think>I need the file.\n\n{text}</think>\n", f"R{{I need the file.\n\n{text.strip()}}}bash({arguments})", "qwen3")
        row(tools, f"<think>{text} is the form.</think>", f"R{{{text} is the form.}}", "qwen3")
        row(tools, f"<think>{text} is the form.", f"R{{{text} is the form.}}", "qwen3")
        row(tools, f"<think>{text}</think>Done.", f"R{{{text.strip()}}}C{{Done.}}", "qwen3")


def glm():
    def call(name, *parameters):
        inner = "".join(f"    <arg_key>{key}</arg_key>\n    <arg_value>{value}</arg_value>\n" for key, value in parameters)
        return f"<tool_call>{name}\n{inner}    </tool_call>"
    row("glm45", "I look. " + call("w", ("city", "Dallas"), ("state", "TX")), 'C{I look.}w({"city": "Dallas", "state": "TX"})')
    row("glm45", call("w", ("city", "D")) + "\n    " + call("w", ("city", "O")), 'w({"city": "D"})w({"city": "O"})')
    row("glm45", "<tool_call>now\n</tool_call>", "now({})")
    row("glm45", f"I look.\n\n{call('w', ('c', '北京'))}\n\nmeanwhile\n\n{call('w', ('c', 'S'))}", 'C{I look.\n\nmeanwhile}w({"c": "北京"})w({"c": "S"})')
    row("glm45", "<think>I want it.</think>\n\nI look.\n" + call("w", ("c", "B")), 'R{I want it.}C{I look.}w({"c": "B"})', "glm45")
    cut = "<tool_call>w\n<arg_key>c</arg_key>\n<arg_value>S</arg_value>"
    row("glm45", cut, f"C{{{cut}}}")


def seed():
    call = "<seed:tool_call>\n<function=w>\n<parameter=l>Barcelona, Spain</parameter>\n</function>\n</seed:tool_call>"
    thought = f"Budget.</seed:cot_budget_reflect>\nThe form is {call}. Wait."
    row("seed_oss", call, 'w({"l": "Barcelona, Spain"})')
    row("seed_oss", f"<seed:think>{thought}</seed:think>\n{call}", f'R{{{thought}}}w({{"l": "Barcelona, Spain"}})', "seed_oss")


def minimax_m3():
    mark = "]<]minimax[>["

    def element(name, *inner):
        return f"{mark}<{name}>{''.join(inner)}{mark}</{name}>"
    items = (element("item", element("k", key), element("q", n)) for key, n in (("b-1", "2"), ("p-7", "5")))
    order = (element("id", "42") + element("u", "true") + element("t", "Leave it.") + element("s", element("c", "SG"), element("z", "18956"))
             + element("l", *items))
    row("minimax_m3", f'I make it.\n{mark}<tool_call>\n{mark}<invoke name="o">{order}{mark}</invoke>\n{mark}</tool_call>',
        'C{I make it.}o({"id": 42, "u": true, "t": "Leave it.", "s": {"c": "SG", "z": 18956}, "l": [{"k": "b-1", "q": 2}, {"k": "p-7", "q": 5}]})')
    row("minimax_m3", f"plain {mark}<tool_ca", f"C{{plain {mark}<tool_ca}}")


# ---- reasoning --------------------------------------------------------------------------------------------------------------------


def reasoning():
    for name, begin, end in (("qwen3", "<think>", "</think>"), ("deepseek_r1", "<think>", "</think>"), ("mistral", "[THINK]", "[/THINK]"),
                             ("granite", "Here is my thought process:", "Here is my response:"), ("seed_oss", "<seed:think>", "</seed:think>"),
                             ("apertus", "<|inner_prefix|>", "<|inner_suffix|>"), ("cohere2", "<|START_THINKING|>", "<|END_THINKING|>"),
                             ("minimax_m3", "<mm:think>", "</mm:think>")):
        for text, message in ((f"{begin}This\nThat{end}The rest\nmore", "R{This\nThat}C{The rest\nmore}"), (f"{begin}This{end}", "R{This}"),
                              (f"{begin}This", "R{This}"), (f"\n{begin}This{end}\nRest", "R{This}C{Rest}"), ("Content", "C{Content}"), ("", ""),
                              (f"{begin}{end}Rest", "C{Rest}"), (f"{begin}foo {end[:3]} {end} bar", f"R{{foo {end[:3]}}}C{{bar}}")):
            row(None, text, message, name)


# ---- Kimi K3 ------------------------------------------------------------------------------------------------------------------------


def element(name, inner=""):
    return f"<|open|>{name}<|sep|>{inner}<|close|>{name}<|sep|>"


def k3_call(name, *arguments):
    def argument(key, kind, value):
        return f'<|open|>argument key="{key}" type="{kind}"<|sep|>{value}<|close|>argument<|sep|>'
    return f'<|open|>call tool="{name}" index="1"<|sep|>{"".join(argument(*each) for each in arguments)}<|close|>call<|sep|>'


def kimi_k3():
    end = "<|close|>message<|sep|>"
    mixed = k3_call("calc", ("x", "number", "1"), ("flag", "boolean", "true"), ("text", "string", "raw"))
    read = 'calc({"x": 1, "flag": true, "text": "raw"})'
    for text, message in ((element("response", "answer") + element("tools", mixed) + end, "C{answer}" + read),
                          (element("response") + element("tools", mixed), read),
                          ("OK<|close|>response<|sep|>", "C{OK}"), ("<|open|>response<|sep|>Hi", "C{Hi}"),
                          ("<|close|>response<|sep|>" + element("tools", k3_call("a") + k3_call("b")), "a({})b({})"),
                          (element("tools", k3_call("f", ("o", "object", '{"a": 1}'), ("l", "array", "[1]"), ("n", "null", "null"))),
                           'f({"o": {"a": 1}, "l": [1], "n": null})'),
                          (element("tools", k3_call("f", ("a&amp;b&quot;c", "string", '"v"\n'))), 'f({"a&b\\"c": "\\"v\\"\\n"})'),
                          (element("tools", k3_call("f", ("a<b", "string", "<|close|>argument<|close|>argument"))),
                           'f({"a<b": "<|close|>argument<|close|>argument"})'),
                          (element("tools", '<|open|>call tool="f" index="1"<|sep|>' + '<|open|>json type="object"<|sep|>{"x": 1}'
                                   "<|close|>json<|sep|><|close|>call<|sep|>"), 'f({"x": 1})'),
                          ("Plain.", "C{Plain.}"), ("a <|open|> b", "C{a <|open|> b}")):
        row("kimi_k3", text, message)
        row("kimi_k3", element("think", "step") + text, "R{step}" + message, "kimi_k3")
        row("kimi_k3", "step<|close|>think<|sep|>" + text, "R{step}" + message, "kimi_k3", is_open=True)
    row(None, "step", "R{step}", "kimi_k3", is_open=True)
    row(None, element("think", "step") + element("response", "answer"), "R{step}C{answer}", "kimi_k3")
    row(None, "answer<|close|>response<|sep|>", "C{answer}", "kimi_k3")


# ---- newer families -----------------------------------------------------------------------------------------------------------------


def newer_families():
    city = named("w", CITY)
    for before, after in (("```json\n[", "]\n```"), ("[TOOL_CALLS][", "]"), ("<tool_call>[", "]</tool_call>"), ("[\n  ", "\n]")):
        row("xlam", before + city + after, f"w({CITY})")
    row("xlam", f"<think>I help.</think>[{city}]", f"R{{I help.}}w({CITY})", "qwen3")
    row("xlam", f"I help.\n[{city}]", f"C{{I help.\n[{city}]}}")
    row("xlam", "[1, 2]", "C{[1, 2]}")

    def gemma_call(name, arguments):
        return f"<start_function_call>call:{name}{{{arguments}}}<end_function_call>".replace('"', "<escape>")
    row("functiongemma", gemma_call("w", 'city:"London"'), 'w({"city": "London"})')
    row("functiongemma", "I look. " + gemma_call("w", 'l:"San Francisco",u:"c"'), 'C{I look.}w({"l": "San Francisco", "u": "c"})')
    row("functiongemma", gemma_call("w", 'c:"A"') + gemma_call("t", 'z:"U"') + gemma_call("n", ""), 'w({"c": "A"})t({"z": "U"})n({})')
    row("functiongemma", gemma_call("f", 'n:42,b:true,l:[1,"a <b> {c}"],o:{k:"v"}'), 'f({"n": 42, "b": true, "l": [1, "a <b> {c}"], "o": {"k": "v"}})')
    row("functiongemma", "<start_function_call>call:w{l:<escape>Lon", "C{<start_function_call>call:w{l:<escape>Lon}")

    def step(*calls, gap=""):
        def invoke(name, *parameters):
            inner = "".join(f'<steptml:parameter name="{key}">{value}</steptml:parameter>{gap}' for key, value in parameters)
            return f'<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">{gap}{inner}</steptml:invoke><｜tool_call_end｜>'
        return f"<｜tool_calls_begin｜>{gap}" + gap.join(invoke(*each) for each in calls) + f"{gap}<｜tool_calls_end｜>"
    for gap in ("", "\n"):
        row("step3", step(("w", ("city", "Tokyo")), gap=gap), 'w({"city": "Tokyo"})')
        row("step3", "I look." + step(("w", ("c", "T"), ("n", "3")), ("t", ("z", "if a < b: x")), ("now",), gap=gap),
            'C{I look.}w({"c": "T", "n": 3})t({"z": "if a < b: x"})now({})')
        row("step3", step(("f", ("l", '["a", {"k": null}]'), ("b", "true")), gap=gap), 'f({"l": ["a", {"k": null}], "b": true})')
    row("step3", f"<think>So.</think>{step(('now',))} Done.", "R{So.}C{Done.}now({})", "step3")
    row("step3", "<｜tool_calls_begin｜><｜tool_call_begin｜>function", "C{<｜tool_calls_begin｜><｜tool_call_begin｜>function}")

    def solar(name, *parameters):
        inner = "".join(f"<|tool_arg:start|>{key}<|tool_arg:value|>{value}<|tool_arg:end|>\n" for key, value in parameters)
        return f"<|tool_call:start|>{name}\n{inner}<|tool_call:end|>"
    row("solar_open2", "This is a regular response.", "C{This is a regular response.}")
    row("solar_open2", solar("w", ("city", "Seoul")), 'w({"city": "Seoul"})')
    row("solar_open2", "Let me check. " + solar("w", ("c", "S"), ("d", "3")) + "\n" + solar("now"), 'C{Let me check.}w({"c": "S", "d": 3})now({})')
    row("solar_open2", solar("e", ("t", 'a\n<|tool_call: "x"')), 'e({"t": "a\\n<|tool_call: \\"x\\""})')
    row("solar_open2", f"<|think:start|>So.<|think:end|>{solar('f', ('o', DEEP))}", f"R{{So.}}f({{\"o\": {DEEP}}})", "solar_open2")
    row("solar_open2", "<|tool_call:start|>w\n<|tool_arg:start|>c", "C{<|tool_call:start|>w\n<|tool_arg:start|>c}")

    def dots(*calls):
        def invoke(name, *parameters):
            inner = "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in parameters)
            return f'<invoke name="{name}">\n{inner}</invoke>\n'
        return "<dots_function_call>\n" + "".join(invoke(*each) for each in calls) + "</dots_function_call>"
    row("dots", dots(("s", ("query", "weather in Shanghai"))), 's({"query": "weather in Shanghai"})')
    row("dots", "I look.\n" + dots(("s", ("q", "a"), ("n", "2")), ("now",)), 'C{I look.}s({"q": "a", "n": 2})now({})')
    row("dots", dots(("a",)) + "\n" + dots(("b", ("x", "true"))), 'a({})b({"x": true})')
    row("dots", "<dots_function_call>\nno", "C{<dots_function_call>\nno}")


def messages():
    """Answers of several messages: Inkling's and Muse Glimmer's."""
    thinks, text, calls, end, next_one = "<|content_thinking|>", "<|content_text|>", "<|content_invoke_tool_json|>", "<|end_message|>", "<|message_model|>"
    think = f"{thinks}I look.{end}"

    def call(name, arguments, header=""):
        return f'{header}{calls}{{"name":"{name}","args":{arguments}}}{end}'
    for begin in ("", next_one):
        for header in ("", "w"):
            row("inkling", begin + call("w", CITY, header), f"w({CITY})", "inkling")
        row("inkling", f"{begin}{think}{next_one}{text}Hi there.{end}", "R{I look.}C{Hi there.}", "inkling")
        row("inkling", f"{begin}{think}{next_one}{text}I check.{end}{next_one}{call('w', CITY, 'w')}{next_one}{call('t', ZONE)}",
            f"R{{I look.}}C{{I check.}}w({CITY})t({ZONE})", "inkling")
    row("inkling", f"{text}One.{end}{next_one}{text}Two.{end}<|content_model_end_sampling|>", "C{One.Two.}", "inkling")
    row("inkling", call("f", ESCAPES), f"f({ESCAPES})", "inkling")
    row("inkling", call("f", '[1]'), "C{" + '{"name":"f","args":[1]}' + "}", "inkling")
    row("inkling", "Plain text.", "C{Plain text.}", "inkling")
    row("inkling", "Plain", "C{Plain}", "inkling")
    row("inkling", f"{thinks}I look", "R{I look}", "inkling")
    row(None, f"{think}{next_one}{text}Yes.", "R{I look.}C{Yes.}", "inkling")

    def atem(name, *parameters):
        inner = "".join(f'<atem:parameter name="{key}">{value}</atem:parameter>\n' for key, value in parameters)
        return f' to={name}<|message|><atem:function_calls>\n<atem:invoke name="{name}">\n{inner}</atem:invoke>\n</atem:function_calls>'
    think, then = " to=self<|message|>I look.", "<|eom|><|start|>assistant"
    row("muse_glimmer", " to=user<|message|>Hi there.<|eot|>", "C{Hi there.}", "muse_glimmer")
    row("muse_glimmer", f"{think}{then} to=user<|message|>Hi there.", "R{I look.}C{Hi there.}", "muse_glimmer")
    row("muse_glimmer", f"{think}{then}{atem('w', ('city', 'Tokyo'), ('n', '3'))}", 'R{I look.}w({"city": "Tokyo", "n": 3})', "muse_glimmer")
    row("muse_glimmer", f"{atem('w', ('c', 'a <b>'))}{then}{atem('t')}<|eot|>", 'w({"c": "a <b>"})t({})', "muse_glimmer")
    row("muse_glimmer", f" to=user<|message|>Wait.{then}{atem('f', ('o', DEEP), ('b', 'true'))}", f'C{{Wait.}}f({{"o": {DEEP}, "b": true}})', "muse_glimmer")
    row("muse_glimmer", " to=w<|message|>no call", "C{no call}", "muse_glimmer")
    row(None, f"{think}{then} to=user<|message|>Yes.", "R{I look.}C{Yes.}", "muse_glimmer")


def words_in_markers():
    """Tencent's models have a word in each marker; newer rows share the forms of GLM and Cohere."""
    def hunyuan(word, behind, *calls, gap="\n"):
        def pairs(parameters):
            return "".join(f"<arg_key{word}>{key}</arg_key{word}>{gap}<arg_value{word}>{value}</arg_value{word}>{gap}" for key, value in parameters)
        inner = "".join(f"<tool_call{word}>{name}{behind}{gap}{pairs(parameters)}</tool_call{word}>{gap}" for name, *parameters in calls)
        return f"<tool_calls{word}>{gap}{inner}</tool_calls{word}>"
    for tools, word, behind in (("hy_v3", ":opensource", "<tool_sep:opensource>"), ("hy_v3", "", "<tool_sep>"), ("hy_v4", ":6124c78e", ""), ("hy_v4", "", "")):
        for gap in ("\n", ""):
            row(tools, hunyuan(word, behind, ("w", ("city", "Seoul"), ("days", "2")), ("t",), gap=gap), 'w({"city": "Seoul", "days": 2})t({})')
            row(tools, "I look." + hunyuan(word, behind, ("w", ("c", "San\nFrancisco")), gap=gap), 'C{I look.}w({"c": "San\\nFrancisco"})')
        row(tools, f"<think>So.</think>{hunyuan(word, behind, ('t',))}", "R{So.}t({})", "hy_v4")
    for tools in ("poolside_v1", "ling3"):
        call = "<tool_call>w<arg_key>c</arg_key><arg_value>B</arg_value></tool_call>"
        row(tools, f"<think>So.</think>{call}\n<tool_call>now</tool_call>", 'R{So.}w({"c": "B"})now({})', tools)
    for tools, tag in (("cohere_command3", "RESPONSE"), ("cohere_command4", "TEXT"), ("cohere2", "RESPONSE")):
        call = '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "w", "parameters": %s}\n]<|END_ACTION|>' % CITY
        think = "<|START_THINKING|>So.<|END_THINKING|>"
        row(tools, think + call, f"R{{So.}}w({CITY})", tools)
        row(tools, f"{think}<|START_{tag}|>Hi there.<|END_{tag}|>", "R{So.}C{Hi there.}", tools)
        row(tools, f"<|START_{tag}|>Hi there.<|END_{tag}|>", "C{Hi there.}", tools)
        row(tools, f"<|START_{tag}|>Hi", "C{Hi}")


# ---- more rows of known families ----------------------------------------------------------------------------------------------------


def more_elements():
    def pairs(name, *parameters):
        inner = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in parameters)
        return f"<tool_call>{name}<tool_sep>\n{inner}</tool_call>\n"
    for text, message in ((pairs("now"), "now({})"), (pairs("w", ("c", "B"), ("d", "D")), 'w({"c": "B", "d": "D"})'),
                          (pairs("w", ("c", "B")) + pairs("w", ("c", "H")), 'w({"c": "B"})w({"c": "H"})')):
        row("hy_v3", f"<tool_calls>\n{text}</tool_calls>", message)
        row("hy_v3", "Checking." + f"<tool_calls>\n{text}</tool_calls>".replace("\n", ""), "C{Checking.}" + message)
    for tools in ("glm45", "glm47"):
        row(tools, "<tool_call>now</tool_call>", "now({})")
        row(tools, "  \n <tool_call>w<arg_key>c</arg_key><arg_value>B</arg_value></tool_call>", 'w({"c": "B"})')
        row(tools, "Checking.<tool_call>now</tool_call><tool_call>now</tool_call>", "C{Checking.}now({})now({})")
        row(tools, "<tool_call></tool_call>", "C{<tool_call></tool_call>}")
        row(tools, '<tool_call>m\n<arg_key>t</arg_key>\n<arg_value>Say "hi"\nnow</arg_value>\n</tool_call>', 'm({"t": "Say \\"hi\\"\\nnow"})')

    def function(name, *parameters):
        return f'<function name="{name}">' + "".join(f'<param name="{key}">{value}</param>' for key, value in parameters) + "</function>"
    row("minicpm5", "Before.\n" + function("w", ("c", "上海"), ("d", "2024-06-27")) + "\nAfter.",
        'C{Before.\nAfter.}w({"c": "上海", "d": "2024-06-27"})')
    row("minicpm5", function("s", ("n", "[1, 2, 3]"), ("e", "true")) + "\n" + function("noop"), 's({"n": [1, 2, 3], "e": true})noop({})')
    for text in ('<function name="w"><param name="c">B</param>', '<function name="w"><param>B</param></function>'):
        row("minicpm5", text, f"C{{{text}}}")

    def invoke(name, *parameters):
        return f'<invoke name="{name}">' + "".join(f'<parameter name="{key}">{value}</parameter>' for key, value in parameters) + "</invoke>"
    row("minimax_m2", "Let me check. <minimax:tool_call>" + invoke("w", ("c", "Seattle"), ("d", "5")) + "</minimax:tool_call>",
        'C{Let me check.}w({"c": "Seattle", "d": 5})')
    row("minimax_m2", "<minimax:tool_call>" + invoke("a", ("q", "x")) + invoke("b") + "</minimax:tool_call>", 'a({"q": "x"})b({})')
    row("minimax_m2", "<minimax:tool_call>\n" + invoke("e", ("s", "  if x:\n    y\n")) + "\n</minimax:tool_call>", 'e({"s": "  if x:\\n    y\\n"})')

    def qwen(name, *parameters):
        return f"<tool_call>\n<function={name}>\n" + "".join(f"<parameter={k}>{v}</parameter>\n" for k, v in parameters) + "</function>\n</tool_call>"
    for tools in ("qwen3_coder", "step3p5", "mimo"):
        row(tools, qwen("w", ("c", "Tokyo")) + qwen("t", ("z", "\nAsia/Tokyo\n")), 'w({"c": "Tokyo"})t({"z": "Asia/Tokyo"})')
        row(tools, "Look.\n\n" + qwen("w", ("c", "T")) + "\n\nThen.", 'C{Look.\n\nThen.}w({"c": "T"})')
        row(tools, qwen("f", ("q", 'He said "hi"'), ("p", "C:\\U"), ("l", "1\n2")), 'f({"q": "He said \\"hi\\"", "p": "C:\\\\U", "l": "1\\n2"})')


def typed():
    """Parameters by their schemas: texts stay texts, other types are JSON, and what is no JSON of an allowed type is a text."""
    text, number, nothing = {"type": "string"}, {"type": "integer"}, {"type": "null"}
    forms = {
        "qwen3_coder": "<tool_call>\n<function=f>\n<parameter=a>\n%s\n</parameter>\n</function>\n</tool_call>",
        "glm45": "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>%s</arg_value>\n</tool_call>",
        "hy_v3": "<tool_calls><tool_call>f<tool_sep><arg_key>a</arg_key><arg_value>%s</arg_value></tool_call></tool_calls>",
        "minimax_m2": '<minimax:tool_call><invoke name="f"><parameter name="a">%s</parameter></invoke></minimax:tool_call>',
        "minicpm5": '<function name="f"><param name="a">%s</param></function>',
        "minimax_m3": ']<]minimax[>[<tool_call>]<]minimax[>[<invoke name="f">]<]minimax[>[<a>%s]<]minimax[>[</a>]<]minimax[>[</invoke>]<]minimax[>[</tool_call>',
    }
    for tools, form in forms.items():
        for schema, value, read in ((text, "42", '"42"'), (text, "true", '"true"'), (text, '{"k": 1}', '"{\\"k\\": 1}"'), (number, "5", "5"),
                                    (number, "five", '"five"'), ({"type": "boolean"}, "true", "true"), ({"type": "number"}, "3.14", "3.14"),
                                    ({"type": "array"}, '["a", 1]', '["a", 1]'), ({"type": "object"}, '{"k": null}', '{"k": null}'),
                                    ({"anyOf": [text, nothing]}, "Alice", '"Alice"'), ({"anyOf": [text, nothing]}, "null", "null"),
                                    ({"anyOf": [{"type": "object"}, nothing]}, '{"t": "dark"}', '{"t": "dark"}'),
                                    ({"type": ["string", "integer"]}, "12", "12"), ({"enum": ["x", "y"]}, "x", '"x"')):
            row(tools, form % value, '%s({"a": %s})' % ("f", read), of={"a": schema})
    for schema, kind, value, read in ((text, "string", "42", '"42"'), (text, "number", "42", '"42"'), (number, "number", "5", "5"),
                                      ({"type": "string", "nullable": True}, "null", "null", "null"),
                                      ({"anyOf": [text, nothing]}, "string", "null", '"null"'),
                                      ({"anyOf": [text, nothing]}, "null", "null", "null")):
        row("kimi_k3", element("tools", k3_call("f", ("a", kind, value))), '%s({"a": %s})' % ("f", read), of={"a": schema})


def more_gemma():
    def call(arguments):
        return f"<|tool_call>call:f{{{arguments}}}<tool_call|>".replace('"', '<|"|>')
    for arguments, read in (('r:{"3":"new text"}', '{"r": {"3": "new text"}}'), ('o:{i:{"a b":1}}', '{"o": {"i": {"a b": 1}}}'),
                            ('"x y": "z",n:1', '{"x y": "z", "n": 1}'), ("", "{}"), ("l:[[1],[]],e:{}", '{"l": [[1], []], "e": {}}')):
        row("gemma4", call(arguments), f"f({read})")
    for text in ("<|tool_call>call:f{left:108.,r:2}<tool_call|>", "<|tool_call>call:f{key:}<tool_call|>"):
        row("gemma4", text, f"C{{{text}}}")


def more_reasoning():
    for name in ("deepseek_r1", "deepseek_v4", "step3", "step3p5", "ernie45", "glm47", "minimax_m2", "nemotron_v3", "hy_v3"):
        for text, message in (("This\nThat</think>The rest\nmore", "R{This\nThat}C{The rest\nmore}"), ("This</think>", "R{This}"), ("This", "R{This}"),
                              ("</think>Rest", "C{Rest}"), ("\nThis\n\n</think>\n\nRest", "R{This}C{Rest}")):
            row(None, text, message, name, is_open=True)
    for begin in ("<think>\n", "\n<think>"):
        for thought in ("A section!", "This\nThat"):
            row(None, f"{begin}{thought}\n</think>\n<answer>\nThe rest\nmore\n</answer>", f"R{{{thought}}}C{{The rest\nmore}}", "hunyuan_a13b")
            row(None, f"{begin}{thought}\n</think>\n<answer>\n", f"R{{{thought}}}", "hunyuan_a13b")
            row(None, f"{begin}{thought}</think>\n\n<response>\nThe rest\n</response>\n", f"R{{{thought}}}C{{The rest}}", "ernie45")
    row(None, "<think>\n\n</think>\n<answer>\nRest\n</answer>", "C{Rest}", "hunyuan_a13b")
    row(None, "Content", "C{Content}", "hunyuan_a13b")


def other_names():
    """Names that vLLM has added for forms above."""
    call = "<tool_call>\n%s\n</tool_call>"
    row("qwen3_json", call % named("w", CITY), f"w({CITY})", "qwen3")
    for reasoning in ("step5", "minicpmv", "granite_thinking_parser"):
        row("step5", "<think>So.</think>\n" + call % "<function=w>\n<parameter=city>\nTokyo\n</parameter>\n</function>", f"R{{So.}}w({CITY})", reasoning)
    for name in ("muse", "musespark1x"):
        row(name, " to=user<|message|>Hi there.<|eot|>", "C{Hi there.}", name)
        row(name, " to=self<|message|>I look.<|eom|><|start|>assistant to=user<|message|>Yes.", "R{I look.}C{Yes.}", name)
        row(name, ' to=w<|message|><atem:function_calls>\n<atem:invoke name="w">\n<atem:parameter name="city">Tokyo</atem:parameter>\n</atem:invoke>\n'
            "</atem:function_calls>", f"w({CITY})", name)


def thoughts_in_content():
    """MiniMax-M2's other parser: the thoughts stay in the content, with the marker that the prompt holds."""
    name, call = "minimax_m2_append_think", '<minimax:tool_call><invoke name="w"><parameter name="city">Tokyo</parameter></invoke></minimax:tool_call>'
    for text in ("This is reasoning</think>This is response", "This is reasoning in progress", "</think>This is response",
                 "Line 1\nLine 2</think>\n\nResponse 1\nResponse 2", "Let me think... 1+1=2</think>Yes!", "```python\nprint('hi')\n```</think>Here.", "a </thin"):
        row(None, text, f"C{{<think>{text}}}", name, is_open=True)
        row(None, f"<think>{text}", f"C{{<think>{text}}}", name)
    row(None, "", "", name, is_open=True)
    row(None, "No thoughts.", "C{No thoughts.}", name)
    row("minimax_m2", f"I look.</think>\n\n{call}", f"C{{<think>I look.</think>}}w({CITY})", name, is_open=True)
    row("minimax_m2", f"I look.\n{call}", f"C{{<think>I look.\n{call}}}w({CITY})", name, is_open=True)


def main():
    for group in (objects, other_objects, llama, python, kimi, deepseek, gemma, harmony, qwen, glm, seed, minimax_m3, reasoning, kimi_k3,
                  newer_families, messages, words_in_markers, more_elements, typed, more_gemma, more_reasoning, other_names, thoughts_in_content):
        group()
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in ROWS)
    pathlib.Path(__file__).with_name("parsers.jsonl").write_text(text)
    print(f"{len(ROWS)} answers")


if __name__ == "__main__":
    main()
