"""llama-server's own paths, as its clients read them."""
from conftest import NAME

MESSAGES = [{"role": "user", "content": "Name three colours."}]


def test_props_has_what_editors_read(server):
    props = server.http.get("/props").json()
    [model] = server.http.get("/v1/models").json()["data"]
    assert props["default_generation_settings"]["n_ctx"] == model["meta"]["n_ctx"]
    assert props["modalities"]["vision"] is False and props["chat_template_caps"]["supports_tools"] is False
    assert "<|im_start|>" in props["chat_template"] and props["eos_token"] == "<|im_end|>"
    assert props["model_alias"] == props["model_path"] == NAME  # not the path of the file


def test_slots_have_no_text(server):
    slots = server.http.get("/slots").json()
    assert len(slots) == server.http.get("/props").json()["total_slots"]
    assert {key for slot in slots for key in slot} == {"id", "n_ctx", "is_processing"}


def test_a_rendered_prompt_is_what_a_chat_computes(server):
    prompt = server.post("/apply-template", {"messages": MESSAGES}).json()["prompt"]
    assert prompt.endswith("Name three colours.<|im_end|>\n<|im_start|>assistant\n")
    ids = server.post("/tokenize", {"content": prompt}).json()["tokens"]
    assert ids == server.post("/tokenize", {"messages": MESSAGES}).json()["tokens"]
    assert server.complete(prompt)["choices"][0]["text"] == server.chat("Name three colours.")["choices"][0]["message"]["content"]
    refused = server.post("/apply-template", {"messages": [{"role": "user"}]})
    assert refused.status_code == 400 and refused.json()["error"]["param"].startswith("messages[0]")


def test_tokens_with_pieces(server):
    found = server.post("/tokenize", {"content": "Grüße 😀", "with_pieces": True}).json()["tokens"]
    raw = b"".join(one["piece"].encode() if isinstance(one["piece"], str) else bytes(one["piece"]) for one in found)
    assert raw.decode() == "Grüße 😀" and any(isinstance(one["piece"], list) for one in found)
    ids = [one["id"] for one in found]
    assert server.post("/tokenize", {"content": "Grüße 😀"}).json()["tokens"] == ids
    assert server.post("/detokenize", {"tokens": ids}).json()["content"] == "Grüße 😀"
