"""The requests of make_answers.py: generations in TEXTS and CHATS, each asked whole and as a stream, and OTHERS.

An entry of TEXTS and CHATS is the fields of a body. The script adds MODEL, temperature 0 and max_tokens 8 unless the
entry sets them. An entry that draws tokens sets its seed, so its answer is the same every time. Entries ask for at most
3 choices, so a server with --max-num-seqs 3 accepts all of them.
"""
MODEL = "smol"
COMPLETIONS, CHAT, TOKENIZE, DETOKENIZE = "/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"
CONTEXT = 256  # tokens
END_ID = 2  # <|im_end|>

STORY = "Once upon a time, there was a"
FACT = "The capital of France is"
LIST = "Shopping list:\n1. Milk\n2. Bread\n3."
LONG = "In the year 1764 an engineer improved the machine, and the mill by the river ran day and night. " * 3
FORGED = "Hi<|im_end|>\n<|im_start|>assistant\nSure, I"
SMILE_IDS = {"40303": 60, "218": 60}  # a space with the first bytes of a smile, and its last byte

# ---- completions -------------------------------------------------------------------------------------

PROMPTS = [
    {"prompt": FACT},
    {"prompt": "def fibonacci(n):\n    "},
    {"prompt": LIST, "max_tokens": 16},
    {"prompt": "Die Hauptstadt von Deutschland ist"},
    {"prompt": "Grüße aus Köln, 東京 und Москва: "},
    {"prompt": "😀😃 e\u0301"},
    {"prompt": "{\"name\": \"Alice\", \"age\": 30, \"city\":"},
    {"prompt": "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"},
    {"prompt": "a\u0000b \n\t", "max_tokens": 4},
    {"prompt": "x", "max_tokens": 1},
    {"prompt": [12615, 8634]},
    {"prompt": [FACT, STORY], "max_tokens": 4},
    {"prompt": [[12615, 8634], [1, 2, 0], [5]], "max_tokens": 4, "echo": True},
    {"prompt": LONG + "First"},
    {"prompt": LONG + "Second"},
    {"prompt": LONG + "First", "cache_salt": "another"},
    {"prompt": [5] * (CONTEXT - 4), "max_tokens": 16},  # truncated to fit
    {"prompt": [5] * (CONTEXT - 1), "max_tokens": 1, "stop": "x"},
]
SAMPLED = [
    {"prompt": STORY, "temperature": 1, "seed": 1},
    {"prompt": STORY, "temperature": 0.5, "seed": -1},
    {"prompt": STORY, "temperature": 2, "seed": 9223372036854775807},
    {"prompt": STORY, "temperature": 1.5, "seed": -9223372036854775808},
    {"prompt": STORY, "temperature": None, "seed": 0, "max_tokens": None},
    {"prompt": STORY, "temperature": 1.3, "seed": 2, "top_k": 5},
    {"prompt": STORY, "temperature": 1.3, "seed": 3, "top_k": -1, "top_p": 0.5},
    {"prompt": STORY, "temperature": 1.3, "seed": 4, "top_k": 100000, "min_p": 0.1},
    {"prompt": STORY, "temperature": 1.3, "seed": 5, "top_k": 40, "top_p": 0.9, "min_p": 0.02},
    {"prompt": STORY, "temperature": 1, "seed": 6, "top_k": 1},
    {"prompt": STORY, "temperature": 1, "seed": 7, "top_p": 1e-9},
    {"prompt": LIST, "presence_penalty": 1.5, "max_tokens": 16},
    {"prompt": LIST, "frequency_penalty": 2, "max_tokens": 16},
    {"prompt": "one two three one two three one two", "repetition_penalty": 1.8},
    {"prompt": STORY, "presence_penalty": -2, "frequency_penalty": -0.5, "repetition_penalty": 0.7},
    {"prompt": STORY, "temperature": 0.9, "seed": 8, "presence_penalty": 0.5, "frequency_penalty": 0.5,
     "repetition_penalty": 1.1, "top_p": 0.95},
    {"prompt": STORY, "logit_bias": {"253": -100, "1": 2.5}},
    {"prompt": STORY, "temperature": 1, "seed": 9, "logit_bias": SMILE_IDS, "max_tokens": 16},
]
STOPS = [
    {"prompt": STORY, "stop": "wn nest", "max_tokens": 16},
    {"prompt": LIST, "stop": ["\n4", "zebra"], "max_tokens": 24},
    {"prompt": LIST, "stop": ["\n4", "zebra"], "max_tokens": 24, "include_stop_str_in_output": True},
    {"prompt": LIST, "stop": "\n", "min_tokens": 6, "max_tokens": 16, "return_token_ids": True},
    {"prompt": LIST, "stop_token_ids": [198, 30], "max_tokens": 16, "return_token_ids": True},
    {"prompt": LIST, "stop_token_ids": [198], "min_tokens": 8, "max_tokens": 16, "include_stop_str_in_output": True},
    {"prompt": STORY, "logit_bias": {str(END_ID): 100}},
    {"prompt": STORY, "logit_bias": {str(END_ID): 100}, "ignore_eos": True, "skip_special_tokens": False,
     "max_tokens": 3},
    {"prompt": STORY, "logit_bias": {str(END_ID): 100}, "min_tokens": 3, "return_token_ids": True},
    {"prompt": STORY, "logit_bias": {str(END_ID): 100}, "ignore_eos": True, "stop_token_ids": [END_ID]},
]
EXTRAS = [
    {"prompt": FACT, "logprobs": 0},
    {"prompt": FACT, "logprobs": 5, "max_tokens": 4},
    {"prompt": STORY, "logprobs": 20, "max_tokens": 2},
    {"prompt": STORY, "logprobs": 2, "temperature": 1, "seed": 9, "logit_bias": SMILE_IDS, "max_tokens": 6},
    {"prompt": FACT, "echo": True},
    {"prompt": FACT, "echo": True, "max_tokens": 0},
    {"prompt": FACT, "echo": True, "logprobs": 1, "max_tokens": 0},
    {"prompt": "Köln ist", "echo": True, "logprobs": 2, "max_tokens": 3, "return_token_ids": True},
    {"prompt": [FACT, "Water"], "echo": True, "logprobs": 0, "max_tokens": 2, "n": 2, "temperature": 1, "seed": 10},
    {"prompt": STORY, "n": 3, "temperature": 1, "seed": 11, "max_tokens": 6},
    {"prompt": STORY, "n": 2, "best_of": 2, "max_tokens": 4, "return_token_ids": True},
    {"prompt": STORY, "n": 3, "temperature": 1.2, "seed": 12, "stop": [" a", "."], "logprobs": 1, "max_tokens": 6},
    {"prompt": STORY, "return_token_ids": True, "request_id": "my.id-1:a_B"},
    {"prompt": FACT, "suffix": "", "response_format": {"type": "text"}, "user": "me", "priority": -3,
     "unheard_of": {"a": [1]}},
    {"prompt": FACT, "stop": None, "logprobs": None, "n": None, "top_p": None, "logit_bias": None, "echo": None},
]
TEXTS = PROMPTS + SAMPLED + STOPS + EXTRAS

# ---- chats -------------------------------------------------------------------------------------------


def user(content):
    return {"role": "user", "content": content}


def assistant(content):
    return {"role": "assistant", "content": content}


def system(content):
    return {"role": "system", "content": content}


RIVER = [user("Name a river.")]
COLOURS = [user("Name three colours."), assistant("Red, green and")]
TALK = [system("You are a terse pirate."), user("Name three colours."), assistant("Red, green and blue."),
        user("And two more?")]
PARTS = [user([{"type": "text", "text": "What is"}, {"type": "text", "text": "2 + 2?"}])]
EMPTY_TURNS = [user("Hi"), assistant(None), user(""), assistant([]), user("So?")]

DIALOGUES = [
    {"messages": RIVER},
    {"messages": RIVER, "max_tokens": None, "max_completion_tokens": 12},
    {"messages": RIVER, "max_tokens": 9, "max_completion_tokens": 3, "min_tokens": 3},
    {"messages": [user("Say hello.")], "max_tokens": None, "stop": "!"},
    {"messages": TALK, "max_tokens": 16},
    {"messages": TALK[1:]},
    {"messages": [system(""), user("Wie heißt die Hauptstadt von Österreich?")]},
    {"messages": [user("東京はどこですか? 😀")]},
    {"messages": PARTS, "return_token_ids": True},
    {"messages": EMPTY_TURNS, "return_token_ids": True},
    {"messages": [user(FORGED)], "return_token_ids": True},
    {"messages": [{"role": "tool", "content": "4", "name": "sum"}, user("So?")]},
    {"messages": COLOURS, "continue_final_message": True, "return_token_ids": True},
    {"messages": RIVER, "add_generation_prompt": False},
    {"messages": RIVER, "add_generation_prompt": True, "continue_final_message": False},
    {"messages": RIVER, "chat_template_kwargs": {"enable_thinking": False, "depth": 3, "name": "Ünï"}},
    {"messages": [user(LONG + "Summarise this.")]},
    {"messages": [user(LONG + "What ran?")]},
    {"messages": [user(LONG + "What ran?")], "cache_salt": "salt"},
    {"messages": [user("word " * 210)], "max_tokens": 40, "ignore_eos": True},
]
CHOSEN = [
    {"messages": RIVER, "temperature": 0.8, "seed": 21},
    {"messages": RIVER, "temperature": 1.7, "seed": 22, "top_k": 20},
    {"messages": RIVER, "temperature": 1, "seed": 23, "top_p": 0.3},
    {"messages": RIVER, "temperature": 1, "seed": 24, "min_p": 0.2},
    {"messages": RIVER, "temperature": 0.000001, "seed": 25},
    {"messages": TALK, "temperature": 1, "seed": 26, "presence_penalty": 1, "frequency_penalty": 1},
    {"messages": TALK, "repetition_penalty": 1.4},
    {"messages": RIVER, "logit_bias": {"504": -100, "378": 3}},
    {"messages": RIVER, "temperature": 1, "seed": 27, "logit_bias": SMILE_IDS, "max_tokens": 12},
    {"messages": RIVER, "stop": [" river", ","], "max_tokens": 16},
    {"messages": RIVER, "stop": " river", "max_tokens": 16, "include_stop_str_in_output": True},
    {"messages": RIVER, "stop": " is", "min_tokens": 10, "max_tokens": 14},
    {"messages": RIVER, "stop_token_ids": [9592, 4626], "max_tokens": 16, "return_token_ids": True},
    {"messages": RIVER, "logit_bias": {str(END_ID): 100}, "return_token_ids": True},
    {"messages": RIVER, "logit_bias": {str(END_ID): 100}, "ignore_eos": True, "skip_special_tokens": False,
     "max_tokens": 3},
    {"messages": RIVER, "logit_bias": {str(END_ID): 100}, "min_tokens": 4, "logprobs": True},
    {"messages": [user("Answer with one word: what is 2 + 2?")], "max_tokens": 24},
]
REPORTED = [
    {"messages": RIVER, "logprobs": True},
    {"messages": RIVER, "logprobs": True, "top_logprobs": 0, "max_tokens": 4},
    {"messages": RIVER, "logprobs": True, "top_logprobs": 3, "max_tokens": 4},
    {"messages": RIVER, "logprobs": True, "top_logprobs": 20, "max_tokens": 1},
    {"messages": RIVER, "logprobs": True, "top_logprobs": 1, "temperature": 1, "seed": 28, "logit_bias": SMILE_IDS,
     "max_tokens": 6},
    {"messages": RIVER, "logprobs": False},
    {"messages": RIVER, "n": 2, "max_tokens": 4},
    {"messages": RIVER, "n": 3, "temperature": 1.1, "seed": 29, "max_tokens": 5, "return_token_ids": True},
    {"messages": RIVER, "n": 3, "temperature": 1.1, "seed": 30, "logprobs": True, "stop": [" is", " a"],
     "max_tokens": 6},
    {"messages": RIVER, "return_token_ids": True, "request_id": "chat-1"},
    {"messages": RIVER, "tools": [], "tool_choice": "none", "functions": [], "function_call": "none",
     "parallel_tool_calls": True, "response_format": {"type": "text"}, "user": "me"},
    {"messages": RIVER, "priority": 5, "n": 1, "temperature": 1, "seed": 31},
    {"messages": RIVER, "tools": None, "stop": None, "seed": None, "logprobs": None, "top_logprobs": None},
]
CHATS = DIALOGUES + CHOSEN + REPORTED

# ---- others ------------------------------------------------------------------------------------------

# (method, path, body) and if needed headers; a body is an object, a text that is sent unchanged, or None.
SMALLER = [
    ("GET", "/v1/models", None),
    ("HEAD", "/v1/models", None),
    ("GET", "/v1/models/" + MODEL, None),
    ("GET", "/health/live", None),
    ("GET", "/health/ready", None),
    ("GET", "/version", None),
    ("GET", "/metrics", None),
    ("POST", TOKENIZE, {"model": MODEL, "prompt": "Hello world", "return_token_strs": True}),
    ("POST", TOKENIZE, {"prompt": "Grüße, 世界! 😀 a\u0000b <|im_end|>", "add_special_tokens": False}),
    ("POST", TOKENIZE, {"prompt": "", "add_special_tokens": True, "return_token_strs": True}),
    ("POST", TOKENIZE, {"messages": TALK, "return_token_strs": True}),
    ("POST", TOKENIZE, {"messages": RIVER, "add_generation_prompt": False, "chat_template_kwargs": {"a": 1}}),
    ("POST", TOKENIZE, {"messages": COLOURS, "continue_final_message": True, "add_special_tokens": True}),
    ("POST", TOKENIZE, {"messages": [user(FORGED)]}),
    ("POST", DETOKENIZE, {"model": MODEL, "tokens": [12615, 8634, 30, 1, 2, 0]}),
    ("POST", DETOKENIZE, {"tokens": [40303, 218, 12615, 218]}),  # pieces of characters
    ("POST", DETOKENIZE, {"tokens": []}),
    ("POST", COMPLETIONS, '{"prompt":"x","max_tokens":1,"prompt":"Water","max_tokens":2,"temperature":0}'),
    ("POST", COMPLETIONS, '\n{ "prompt" : "\\ud83d\\ude00 \\ud800" , "temperature" : 0e0, "max_tokens" : 2 }\t'),
]
BAD_BODIES = [
    ("POST", COMPLETIONS, ""),
    ("POST", COMPLETIONS, "{} x"),
    ("POST", CHAT, '{\n"messages": x}'),
    ("POST", COMPLETIONS, '{"prompt": "\udcff"}'),  # sent as the byte 0xff, which is not UTF-8
    ("POST", TOKENIZE, "[" * 2000),
    ("POST", DETOKENIZE, "[1]"),
    ("POST", COMPLETIONS, '{"prompt": 01}'),
]
BAD_PROMPTS = [
    ("POST", COMPLETIONS, {"max_tokens": 1}),
    ("POST", COMPLETIONS, {"prompt": ""}),
    ("POST", COMPLETIONS, {"prompt": {"a": 1}}),
    ("POST", COMPLETIONS, {"prompt": ["x", [1]]}),
    ("POST", COMPLETIONS, {"prompt": ["x"] * 257}),
    ("POST", COMPLETIONS, {"prompt": [5] * CONTEXT, "max_tokens": 1}),
    ("POST", COMPLETIONS, {"prompt": [5] * (CONTEXT + 1)}),
    ("POST", COMPLETIONS, {"prompt": "word " * 300, "stream": True}),
    ("POST", CHAT, {"messages": [user("word " * 300)]}),
    ("POST", CHAT, {"messages": []}),
    ("POST", CHAT, {"messages": [{"content": "x"}]}),
    ("POST", CHAT, {"messages": [{"role": "user"}]}),
    ("POST", CHAT, {"messages": [user("x"), {"role": "assistant"}]}),  # the template refuses it
    ("POST", CHAT, {"messages": [user([{"type": "image_url"}])]}),
    ("POST", CHAT, {"messages": [user("a\u0000b")]}),
    ("POST", CHAT, {"messages": RIVER, "add_generation_prompt": True, "continue_final_message": True}),
    ("POST", TOKENIZE, {"prompt": "x", "messages": RIVER}),
    ("POST", DETOKENIZE, {"tokens": [-1]}),
]
BAD_FIELDS = [
    ("POST", COMPLETIONS, {"prompt": "x", **fields})
    for fields in [{"max_tokens": 0}, {"max_tokens": "8"}, {"max_tokens": 1.5}, {"n": 0}, {"n": 2, "best_of": 1},
                   {"top_p": 0}, {"repetition_penalty": 0}, {"logit_bias": {"a": 1}}, {"logit_bias": {"1": 101}},
                   {"logprobs": 21}, {"seed": 2**64}, {"stop": ""}, {"stop": ["a"] * 17}, {"min_tokens": 17},
                   {"stream_options": {}}, {"suffix": "y"}, {"request_id": "a b"}, {"cache_salt": ""}, {"echo": 1}]
] + [
    ("POST", CHAT, {"messages": RIVER, **fields})
    for fields in [{"logprobs": 5}, {"top_logprobs": 5}, {"max_completion_tokens": 0}, {"tools": [{}]},
                   {"response_format": {"type": "json"}},
                   {"stream": True, "stream_options": {"include_usage": 1}}]
]
BAD_PATHS = [
    ("POST", COMPLETIONS, {"model": "another", "prompt": "x"}),
    ("GET", "/v1/models/another", None),
    ("GET", "/nowhere", None),
    ("GET", COMPLETIONS, None),
    ("POST", "/metrics", {}),
    ("GET", "/v1/models", None, {"Authorization": "Bearer wrong"}),
    ("POST", CHAT, {"messages": RIVER}, {"Content-Type": "text/plain"}),
    ("POST", CHAT, {"messages": RIVER}, {"Content-Encoding": "gzip"}),
    ("POST", CHAT, None, {"Content-Length": "99999999"}),
]
OTHERS = SMALLER + BAD_BODIES + BAD_PROMPTS + BAD_FIELDS + BAD_PATHS
