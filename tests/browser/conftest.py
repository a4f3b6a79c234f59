"""The web page in headless Chromium, with the built server and its model. Servers are started as in tests/e2e."""
import json
import pathlib
import sys
import time

import pytest
from playwright.sync_api import sync_playwright

TESTS = pathlib.Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "e2e")]
pytest_plugins = ["e2e.conftest"]

PATIENCE_S = 120  # however busy the machine is
PICTURES = TESTS.parent / "build/page"

# Reports of the policy, which a page that loads something foreign would cause.
WATCH = "window.reports = []; addEventListener('securitypolicyviolation', (e) => reports.push(e.violatedDirective + ' ' + e.blockedURI))"

# Whether a kept conversation has n messages, and the last is an answer that has ended.
KEPT = """(n) => new Promise((resolve, reject) => {
  const opening = indexedDB.open("penstock");
  opening.onerror = () => reject(opening.error);
  opening.onsuccess = () => {
    const all = opening.result.transaction("conversations").objectStore("conversations").getAll();
    all.onsuccess = () => {
      opening.result.close();
      resolve(all.result.some(({ messages }) => messages.length === n && messages.at(-1).stats.total_ms > 0));
    };
  };
})"""


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        one = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield one
        one.close()


class Page:
    """One tab with a fresh browser profile, and what it asked for."""

    def __init__(self, browser, url, ready=True, **options):
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        self.context.set_default_timeout(PATIENCE_S * 1000)
        self.tab = self.context.new_page()
        self.url, self.errors, self.asked = url, [], []
        self.tab.add_init_script(WATCH)
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.open(ready)

    def open(self, ready=True):
        self.tab.goto(self.url)
        if ready:
            self.tab.wait_for_selector("body[data-ready]")

    def wait(self, condition):
        """Waits until an expression is true. The policy of the page forbids to evaluate it inside."""
        end = time.monotonic() + PATIENCE_S
        while not self.tab.evaluate(condition):
            assert time.monotonic() < end, condition
            self.tab.wait_for_timeout(20)

    def send(self, text):
        self.tab.fill("#input", text)
        self.tab.press("#input", "Enter")

    def send_endless(self):
        """Asks a server that has the arguments ENDLESS for an answer that outlasts the test."""
        self.set("max_tokens", 7000)
        self.set("more", '{"ignore_eos": true}')
        self.send("Tell a very long story about a lighthouse.")

    def wait_for_answer(self):
        """Before the request is sent, nothing runs either; only an answer that has ended shows its figures or a problem."""
        self.tab.wait_for_selector(".message.assistant:last-child:has(.stats:not(:empty), .problem:not([hidden]))")
        self.tab.wait_for_selector("#stop[disabled]")
        return self.texts()[-1]

    def chat(self, text):
        self.send(text)
        return self.wait_for_answer()

    def wait_until_kept(self, n):
        """Waits until the browser's database has a conversation of n messages whose last has ended: the page shows it first."""
        self.wait(f"({KEPT})({n})")

    def texts(self):
        return self.tab.eval_on_selector_all(".message > .content", "all => all.map(one => one.innerText)")

    def set(self, name, value):
        """Fills a field of the settings, wherever it is folded."""
        self.tab.eval_on_selector_all("#settings details", "all => all.forEach(one => one.open = true)")
        self.tab.fill(f"#set-{name}", str(value))

    def answer_with(self, *chunks, status=200, headers=None):
        """From now on the page gets these chunks, or with another status this body, in place of the model's answer."""
        lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + ["data: [DONE]\n\n"]
        body = "".join(lines) if status == 200 else json.dumps(chunks[0])
        sent = []

        def fulfil(route):
            sent.append(route.request.post_data_json)
            route.fulfill(status=status, headers={"Content-Type": "text/event-stream", **(headers or {})}, body=body)

        self.tab.route("**/v1/chat/completions", fulfil)
        return sent

    def answer_text(self, text):
        return self.answer_with({"choices": [{"delta": {"content": text}}]}, {"choices": [{"delta": {}, "finish_reason": "stop"}]})

    def picture(self, name):
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.tab.screenshot(path=PICTURES / f"{name}.png")

    def close(self):
        foreign = [url for url in self.asked if not url.startswith((self.url, "data:", "blob:"))]
        reports = self.tab.evaluate("window.reports")
        self.context.close()
        assert not self.errors and not foreign and not reports, (self.errors, foreign, reports)


@pytest.fixture
def visit(browser):
    """visit(server) opens its page in a tab of its own."""
    open_pages = []

    def begin(server, **options):
        open_pages.append(Page(browser, server.url + "/", **options))
        return open_pages[-1]

    yield begin
    for one in open_pages:
        one.close()


@pytest.fixture
def page(visit, server):
    return visit(server)
