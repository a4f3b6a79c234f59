"""The chat of the web page."""
import json
import re
import signal
import subprocess

import pytest
from axe_playwright_python.sync_playwright import Axe

from e2e.conftest import ROOT, Server
from streams import ENDLESS, endless, until


@pytest.fixture(scope="module")
def slow():
    """A server for answers that outlast a test."""
    one = Server("--kv-cache-memory", "256MiB", *ENDLESS)
    yield one.wait_until_ready()
    one.stop()


def test_the_first_words_are_shown_before_the_last_are_computed(visit, slow):
    page = visit(slow)
    page.send_endless()
    page.wait("document.querySelector('.assistant > .content').innerText.length > 20")
    assert slow.metric("vllm:num_requests_running") == 1 and page.tab.is_enabled("#stop")
    early = page.texts()[-1]
    page.wait(f"document.querySelector('.assistant > .content').innerText.length > {len(early) + 20}")
    page.tab.keyboard.press("Escape")
    page.wait_for_answer()
    assert "You stopped this answer." in page.tab.inner_text(".assistant .problem")
    slow.wait_until_idle()


def test_a_conversation_outlives_a_reload_and_stays_in_the_browser(page):
    page.set("max_tokens", 12)
    page.set("more", '{"ignore_eos": true}')
    first = page.chat("What is two plus two?")
    page.wait_until_kept(2)
    page.open()
    assert page.texts() == ["What is two plus two?", first]
    assert page.tab.input_value("#set-max_tokens") == "12"
    assert re.search(r"12 tokens · [\d.]+ tokens/s · first after \d+ ms · prompt \d+", page.tab.inner_text(".assistant .stats"))
    page.tab.click("text=Delete all")
    page.tab.click("dialog button.danger")
    page.wait("document.querySelectorAll('.message').length === 0")
    page.open()
    assert page.texts() == []


def test_editing_and_regenerating_replace_what_follows(page):
    page.set("max_tokens", 8)
    page.set("temperature", 0)
    one = page.chat("Name a colour.")
    page.chat("And another one.")
    page.tab.click(".message:nth-child(2) >> text=Regenerate")
    assert page.wait_for_answer() == one and len(page.texts()) == 2
    page.tab.click(".message:nth-child(1) >> text=Edit")
    page.tab.fill(".message:nth-child(1) textarea", "Name a fruit.")
    page.tab.click("text=Send again")
    page.wait_for_answer()
    assert page.texts()[0] == "Name a fruit." and len(page.texts()) == 2


def test_settings_and_the_system_prompt_reach_the_request(page):
    sent = page.answer_text("Yes.")
    page.tab.fill("#system", "Be brief.")
    for name, value in {"temperature": 0.5, "seed": 7, "stop": "a\nb", "schema": '{"type":"object"}', "more": '{"n_probs":0}'}.items():
        page.set(name, value)
    page.chat("Is it?")
    body = sent[0]
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is it?"}]
    assert (body["temperature"], body["seed"], body["stop"], body["n_probs"]) == (0.5, 7, ["a", "b"], 0)
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"} and "top_p" not in body
    page.set("schema", "{")
    page.send("Again?")
    page.tab.wait_for_selector("dialog >> text=this is not JSON")
    assert len(sent) == 1


# Numbers of a request that are no settings of sampling: several answers and searches, when, the prompt, and what comes beside the text.
NO_SAMPLING = {"n", "best_of", "length_penalty", "max_completion_tokens", "truncate_prompt_tokens", "prompt_logprobs",
               "speculative_tokens", "priority", "deadline_ms"}


def test_each_number_that_shapes_the_tokens_has_a_field_with_the_servers_default(page, server):
    fields = server.http.get("/openapi.json").json()["components"]["schemas"]["v1_chat_completions"]["properties"]
    numbers = {name for name, field in fields.items()
               if {"number", "integer"} & set(field.get("type", [])) and not field.get("description", "").startswith("Another name")}
    shown = page.tab.eval_on_selector_all("#settings input[type=number]", "all => all.map(one => [one.id.slice(4), one.placeholder, one.min, one.max])")
    assert numbers - {name for name, *_ in shown} == NO_SAMPLING
    for name, placeholder, low, high in shown:
        assert placeholder, name
        assert [low, high] == ["" if fields[name].get(end) is None else str(fields[name][end]) for end in ("minimum", "maximum")], name


# Fields that shape the tokens and are no number: what a user writes, and what the request gets.
WRITTEN = {
    "stop": (" a\n\\n\n\\\\d\n\n", [" a", "\n", "\\d"]),
    "stop_regex": ("\\d+\\n\n[.]!", ["\\d+\\n", "[.]!"]),
    "stop_token_ids": ("5, 6\n7", [5, 6, 7]),
    "bad_words": ("foo\n two words", ["foo", " two words"]),
    "allowed_token_ids": ("1 2", [1, 2]),
    "logit_bias": ('{"3": -100, "4": 1.5}', {"3": -100, "4": 1.5}),
    "dry_sequence_breakers": ("\\n\n;", ["\n", ";"]),
}


def test_each_other_field_that_shapes_the_tokens_reaches_the_request(page):
    sent = page.answer_text("Yes.")
    for name, (text, _) in WRITTEN.items():
        page.set(name, text)
    for name in ("include_stop_str_in_output", "ignore_eos"):
        page.tab.check(f"#set-{name}")
    page.chat("Is it?")
    assert {name: sent[0].get(name) for name in WRITTEN} == {name: value for name, (_, value) in WRITTEN.items()}
    assert sent[0]["include_stop_str_in_output"] is sent[0]["ignore_eos"] is True
    page.open()  # what is set is kept
    assert page.tab.input_value("#set-stop") == WRITTEN["stop"][0] and page.tab.is_checked("#set-ignore_eos")
    page.tab.click("text=Use the server's defaults")
    page.set("stop", "\n\n")
    page.chat("Is it?")
    assert not ({*WRITTEN, "include_stop_str_in_output", "ignore_eos"} & set(sent[-1]))


def test_the_server_accepts_them(page):
    page.set("max_tokens", 3)
    page.set("dry_multiplier", 1)
    for name, (text, _) in WRITTEN.items():
        page.set(name, text)
    page.tab.fill("#set-allowed_token_ids", "")
    page.chat("Is it?")
    assert page.tab.inner_text(".assistant .problem") == ""
    page.set("allowed_token_ids", "345")
    page.set("stop", "")
    page.chat("Is it?")
    assert page.tab.inner_text(".message:nth-child(4) .stats").startswith("3 tokens")


def test_the_defaults_of_breakers_are_the_servers(page):
    source = (ROOT / "server/generation/dry_breakers.c").read_text()
    defaults = re.findall(r'\{"((?:\\.|[^"])+)", 1\}', source)
    assert len(defaults) == 4
    shown = page.tab.get_attribute("#set-dry_sequence_breakers", "placeholder").split("\n")
    assert shown == [one.replace('\\"', '"') for one in defaults]


@pytest.mark.parametrize("name, text, problem", [
    ("logit_bias", "{1: 2}", "Logit bias by id (JSON): this is not JSON: "),
    ("logit_bias", "[1]", "Logit bias by id (JSON): this must be an object"),
    ("more", '"x"', "Other fields of the request (JSON): this must be an object"),
    ("stop_token_ids", "5 x", 'Stop tokens (ids of tokens): "x" is not an id'),
])
def test_a_wrong_setting_is_named(page, name, text, problem):
    sent = page.answer_text("Yes.")
    page.set(name, text)
    page.send("Is it?")
    page.tab.wait_for_selector("dialog")
    assert problem in page.tab.inner_text("dialog") and not sent
    page.tab.keyboard.press("Enter")  # the button that closes it has the focus
    page.tab.wait_for_selector("dialog", state="detached")


def test_an_adapter_is_chosen_by_its_name(visit, start):
    vectors = ROOT / "tests/vectors"
    page = visit(start("--model", str(vectors / "folders/qwen2"), "--max-model-len", "96", "--lora", f"poet={vectors / 'adapters/qwen2-8'}"))
    sent = page.answer_text("Yes.")
    assert page.tab.eval_on_selector_all("#model option", "all => all.map(one => one.value)") == ["smol", "poet"]
    page.tab.select_option("#model", "poet")
    page.chat("Is it?")
    assert sent[0]["model"] == "poet"


def test_the_command_of_curl_gets_an_answer(page):
    page.set("max_tokens", 3)
    page.chat("It's \"two\"?")
    page.tab.click("text=As curl")
    command = page.tab.inner_text("dialog pre")
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
    assert done.rstrip().endswith("data: [DONE]")


def test_tools_are_called_and_their_results_sent(page):
    call = {"index": 0, "id": "c1", "function": {"name": "get_weather", "arguments": '{"city":'}}
    rest = {"index": 0, "function": {"arguments": '"Rome"}'}}
    sent = page.answer_with({"choices": [{"delta": {"reasoning_content": "Hm."}}]}, {"choices": [{"delta": {"tool_calls": [call]}}]},
                            {"choices": [{"delta": {"tool_calls": [rest]}, "finish_reason": "tool_calls"}]})
    page.tab.click("summary:has-text('Tools and format')")
    page.tab.click("[aria-label='Example of Tools (JSON)']")
    page.chat("Weather in Rome?")
    assert sent[0]["tools"][0]["function"]["name"] == "get_weather"
    assert json.loads(page.tab.inner_text(".call pre")) == {"city": "Rome"} and not page.tab.is_visible(".thoughts")
    page.answer_text("Sunny.")
    page.tab.fill(".call textarea", "sun")
    page.tab.click("text=Send the result")
    page.wait("document.querySelectorAll('.message').length === 4")
    assert page.wait_for_answer() == "Sunny."


def test_log_probabilities_are_shown_on_demand(page):
    page.set("max_tokens", 4)
    page.set("more", '{"ignore_eos": true}')
    page.set("top_logprobs", 2)
    page.chat("Hi")
    page.tab.click(".logprobs summary")
    page.wait("document.querySelectorAll('.logprobs tbody tr').length === 4")


@pytest.mark.parametrize("status, message", [(429, "The waiting queue is full."), (503, "The server is shutting down.")])
def test_a_refusal_is_shown(page, status, message):
    page.answer_with({"error": {"message": message}}, status=status, headers={"Retry-After": "3"})
    page.send("Hi")
    page.wait_for_answer()
    assert page.tab.inner_text(".assistant .problem") == f"{message} (Try again in 3 s.)"
    assert page.tab.is_enabled("#send")


def test_a_full_queue_and_a_drain_are_shown(visit, start):
    server = start("--max-num-seqs", "1", "--max-queued-requests", "1", "--drain-delay", "60", *ENDLESS)
    page = visit(server)
    with endless(server, 1):
        until(lambda: server.metric("vllm:num_requests_running") == 1)
        # The queue has one place, so the second stream starts after the first has left it.
        with endless(server, 1):
            until(lambda: server.metric("vllm:num_requests_waiting") == 1)
            page.send("Hi")
            page.wait_for_answer()
            assert "Try again in" in page.tab.inner_text(".assistant .problem")
            server.process.send_signal(signal.SIGTERM)
            until(lambda: server.http.get("/health/ready").status_code == 503)
            page.tab.click("text=Regenerate")
            page.wait("document.querySelector('.assistant .problem')?.innerText.includes('shutting down')")
    assert page.tab.is_enabled("#send")


def test_a_server_that_dies_leaves_an_incomplete_answer_that_says_so(visit, start):
    server = start(*ENDLESS)
    page = visit(server)
    page.send_endless()
    page.wait("document.querySelector('.assistant > .content').innerText.length > 20")
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    assert len(page.wait_for_answer()) > 20
    assert "This answer is incomplete." in page.tab.inner_text(".assistant .problem")


def test_a_key_is_asked_for_and_stays_in_the_tab(visit, start):
    page = visit(start("--api-key", "sesame"), ready=False)
    page.tab.fill("dialog input", "wrong")
    page.tab.press("dialog input", "Enter")
    page.tab.wait_for_selector("dialog")
    page.tab.fill("dialog input", "sesame")
    page.tab.press("dialog input", "Enter")
    page.tab.wait_for_selector("body[data-ready]")
    page.set("max_tokens", 3)
    page.set("temperature", 0)  # random text may be empty
    assert page.chat("Hi")
    assert page.tab.evaluate("sessionStorage['penstock-key']") == "sesame"
    assert "sesame" not in page.tab.evaluate("JSON.stringify(localStorage)")
    page.tab.click("text=As curl")
    assert "sesame" not in page.tab.inner_text("dialog pre")


HOSTILE = """<script>window.hit = 1</script><img src=x onerror="window.hit = 1"> <b onclick=x>b</b>

[a](javascript:window.hit=1) [b](data:text/html,x) ![c](https://evil.example/c.png) <javascript:x> [d](https://good.example/d "t")

| a | <i>b</i> |
|---|---|
| `<script>` | **x** |

```html"><script>window.hit = 1</script>
<script>window.hit = 1</script>
```
\u202eabc\u202c \u2066x\u2069 **""" + "*_~`[" * 3000


def test_hostile_output_makes_no_element_and_no_request(page):
    page.answer_text(HOSTILE)
    page.chat("Hi")
    assert page.tab.evaluate("window.hit") is None
    inside = ".assistant > .content "
    assert page.tab.locator(", ".join(inside + tag for tag in ("script", "img", "b", "i", "iframe", "[onclick]", "[style]"))).count() == 0
    links = page.tab.eval_on_selector_all(inside + "a", "all => all.map(one => [one.href, one.rel])")
    assert [address for address, _ in links] == ["https://evil.example/c.png", "https://good.example/d"]
    assert all("noopener" in rel and "noreferrer" in rel for _, rel in links)


def test_a_megabyte_on_one_line_is_shown(page):
    page.answer_text("x" * (1 << 20) + " <script>")
    page.chat("Hi")
    assert page.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.tab.evaluate("document.querySelector('.assistant > .content').textContent.length") == (1 << 20) + 9


def test_conversations_are_exported_and_imported(page, visit, server, tmp_path):
    page.answer_text("Fine, *thanks*.")
    page.chat("How are you?")
    with page.tab.expect_download() as download:
        page.tab.click("text=Export")
    path = tmp_path / "kept.json"
    download.value.save_as(path)
    other = visit(server)
    other.tab.set_input_files("#history input[type=file]", path)
    other.tab.click("#history .title")
    assert other.texts() == ["How are you?", "Fine, thanks."]
    path.write_text('{"conversations": [{"messages": [{"role": "root"}]}]}')
    other.tab.set_input_files("#history input[type=file]", path)
    other.tab.wait_for_selector("dialog >> text=unknown role")


def test_all_works_by_keyboard(page):
    """From the message to its answer's buttons, a fold of the settings and the dialog of the command, and back."""
    page.answer_text("One. Two!")
    page.tab.keyboard.type("Hi")
    page.tab.keyboard.press("Shift+Enter")
    page.tab.keyboard.type("there")
    page.tab.keyboard.press("Enter")
    page.wait_for_answer()
    assert page.texts()[0] == "Hi\nthere"
    seen = set()
    for _ in range(60):
        page.tab.keyboard.press("Tab")
        seen.add(page.tab.evaluate("document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText.trim()"))
    assert {"New conversation", "Regenerate this message", "Edit this message", "As curl", "Send", "Sampling"} <= seen
    page.tab.focus("#curl")
    page.tab.keyboard.press("Enter")
    page.tab.wait_for_selector("dialog")
    page.tab.keyboard.press("Escape")
    page.wait("document.activeElement.id === 'curl'")


def test_answers_are_announced_by_sentence(page):
    page.answer_text("One is done. Two is")
    page.chat("Hi")
    said = page.tab.eval_on_selector_all("#announcer p", "all => all.map(one => one.textContent)")
    assert " ".join(said) == "One is done. Two is"


@pytest.mark.parametrize("motion, animation", [("no-preference", "pulse"), ("reduce", "none")])
def test_motion_is_reduced_on_request(visit, slow, motion, animation):
    page = visit(slow, reduced_motion=motion)
    page.send_endless()
    page.tab.wait_for_selector(".running .message:last-child .role")
    assert page.tab.evaluate("getComputedStyle(document.querySelector('.running .message:last-child .role'), '::after').animationName") == animation
    page.tab.keyboard.press("Escape")
    page.wait_for_answer()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(visit, slow, theme):
    page = visit(slow, color_scheme=theme)
    found = [Axe().run(page.tab)]
    page.send_endless()
    page.tab.wait_for_selector(".running .assistant")
    found.append(Axe().run(page.tab))
    page.tab.keyboard.press("Escape")
    page.wait_for_answer()
    page.answer_text("# A\n\nText with `code`, [a link](https://a.example) and **more**.\n\n- a\n- b\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```c\nint x;\n```\n")
    page.chat("Hi")
    page.tab.eval_on_selector_all("#settings details", "all => all.forEach(one => one.open = true)")
    found.append(Axe().run(page.tab))
    page.answer_with({"error": {"message": "It is full."}}, status=429)
    page.chat("Hi")
    page.tab.click("text=As curl")
    found.append(Axe().run(page.tab))
    assert [one.generate_report() for one in found if one.violations_count] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width, height", [(320, 640), (1280, 800), (2560, 1440), (3840, 2160)])
def test_the_page_fits_its_window(visit, server, width, height, theme):
    page = visit(server, color_scheme=theme, viewport={"width": width, "height": height})
    page.picture(f"empty_{width}_{theme}")
    page.answer_text("Some **bold** text and a list:\n\n1. one\n2. two `code`\n   - inner\n\n| Tree | Height |\n|---|---|\n| oak | 30 m |\n| a_very_long_word_" + "x" * 60
                     + " | 1 |\n\n> A quote\n\n```python\ndef add(a, b):\n    return a + b\n```")
    page.chat("Show me everything, please.")
    page.picture(f"chat_{width}_{theme}")
    assert page.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if width < 1100:
        page.tab.click("#show-settings")
        page.picture(f"settings_{width}_{theme}")
        page.tab.keyboard.press("Escape")
        page.tab.wait_for_selector("#settings", state="hidden")
