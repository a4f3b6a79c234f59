"""Measures the web page in headless Chromium: first paint, size, frames while an answer streams in, memory over many answers.

    docker/setup.sh browser && docker/venv.sh build/browser/venv tests/browser/requirements.txt
    build/browser/venv/bin/python bench/page.py [--program build/penstock] [--model models/....gguf] [--repeats 9]
                                                [--tokens 2000] [--answers 50] [--answer-tokens 100] [--out FILE]

The server has one thread, because the browser shares the machine with it. The figures:

- first paint: from the navigation to the first content, each time with an empty cache; size: the bytes of all files
- frames: the longest time between two frames while `--tokens` tokens stream into one answer, how many were above 50 ms, and
  the longest task of the page's own thread (0 if none took 50 ms, which is when the browser reports one). Other processes
  delay frames; they make no task longer than 50 ms unless they take the core for that time
- memory: the page's heap and its DOM nodes after a collection, after 10 answers and at the end. One answer is regenerated
  again and again, so what the page shows stays the same
"""
import statistics

from playwright.sync_api import sync_playwright

import runs

CHROMIUM = "/usr/bin/chromium"
LIMIT_MS = 50
RECORD = """
window.seen = {frames: [], tasks: [], last: 0, on: false};
function frame(now) {
    if (seen.on && seen.last) seen.frames.push(now - seen.last);
    seen.last = now;
    requestAnimationFrame(frame);
}
requestAnimationFrame(frame);
new PerformanceObserver((list) => {
    if (seen.on) seen.tasks.push(...list.getEntries().map((one) => one.duration));
}).observe({type: "longtask"});
"""
PAINT = "performance.getEntriesByName('first-contentful-paint').map((one) => one.startTime)"
BYTES = """[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
    .filter((one) => /\\/$|\\.(js|css)$/.test(one.name)).reduce((sum, one) => sum + one.decodedBodySize, 0)"""


class Tab:
    """A tab of a fresh profile, with the page ready."""

    def __init__(self, browser, url):
        self.context = browser.new_context(viewport={"width": 1280, "height": 800})
        self.tab = self.context.new_page()
        self.tab.add_init_script(RECORD)
        self.tab.goto(url)
        self.tab.wait_for_selector("body[data-ready]")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()

    def settings(self, tokens):
        self.tab.eval_on_selector_all("#settings details", "all => all.forEach(one => one.open = true)")
        for name, value in (("max_tokens", str(tokens)), ("temperature", "0"), ("more", '{"ignore_eos": true}')):
            self.tab.fill(f"#set-{name}", value)

    def wait_for_answer(self, tokens):
        self.tab.wait_for_selector("#stop[disabled]", timeout=600_000)
        text = self.tab.inner_text(".message.assistant:last-child .stats", timeout=60_000)
        if f"{tokens} tokens" not in text:
            raise RuntimeError(f"the answer should have {tokens} tokens; the page says: {text}")
        return text

    def ask(self, text, tokens):
        self.tab.fill("#input", text)
        self.tab.press("#input", "Enter")
        self.tab.wait_for_selector("#stop:not([disabled])")
        return self.wait_for_answer(tokens)

    def regenerate(self, tokens):
        self.tab.click(".message.assistant:last-child >> text=Regenerate")
        self.tab.wait_for_selector("#stop:not([disabled])")
        return self.wait_for_answer(tokens)


def paint(browser, url, repeats):
    """Times of the first paint in ms, and the size of the page in bytes."""
    times, size = [], 0
    for _ in range(repeats):
        with Tab(browser, url) as one:
            while not (found := one.tab.evaluate(PAINT)):
                one.tab.wait_for_timeout(20)
            times += found
            size = one.tab.evaluate(BYTES)
    return times, size


def frames(browser, url, tokens):
    """The times between frames and the long tasks, in ms, while an answer streams in; and what the page says of the answer."""
    with Tab(browser, url) as one:
        one.settings(tokens)
        one.tab.evaluate("seen.on = true")
        said = one.ask("Write a very long story about a ship, its crew and a storm. Use headings, lists and tables.", tokens)
        one.tab.evaluate("seen.on = false")
        seen = one.tab.evaluate("seen")
        return seen["frames"], seen["tasks"], said


def memory(browser, url, answers, tokens):
    """[(bytes of the heap, DOM nodes)] after a collection, after each answer."""
    found = []
    with Tab(browser, url) as one:
        devtools = one.context.new_cdp_session(one.tab)
        for method in ("HeapProfiler.enable", "Performance.enable"):
            devtools.send(method)
        one.settings(tokens)
        for i in range(answers):
            if i == 0:
                one.ask("Write a long story about a ship.", tokens)
            else:
                one.regenerate(tokens)
            devtools.send("HeapProfiler.collectGarbage")
            metrics = {metric["name"]: metric["value"] for metric in devtools.send("Performance.getMetrics")["metrics"]}
            found.append((metrics["JSHeapUsedSize"], metrics["Nodes"]))
    return found


def report(args, browser, url):
    times, size = paint(browser, url, args.repeats)
    print(f"first paint {runs.spread(times, 0)} ms; {size / 1000:.1f} KB", flush=True)
    gaps, tasks, said = frames(browser, url, args.tokens)
    late, ordered = sum(gap > LIMIT_MS for gap in gaps), sorted(gaps)
    print(f"frames: {len(gaps)}, median {statistics.median(gaps):.1f} ms, p99 {ordered[int(len(ordered) * .99)]:.1f} ms, longest {ordered[-1]:.1f} ms, "
          f"{late} above {LIMIT_MS} ms; longest task {max(tasks, default=0):.0f} ms ({len(tasks)} long ones); {said}", flush=True)
    held = memory(browser, url, args.answers, args.answer_tokens)
    early, end = held[min(9, len(held) - 1)], held[-1]
    print(f"memory: {early[0] / 1e6:.2f} MB and {early[1]:.0f} nodes after {min(10, len(held))} answers, {end[0] / 1e6:.2f} MB and {end[1]:.0f} nodes "
          f"after {len(held)}", flush=True)
    return {"first_paint_ms": times, "page_bytes": size, "frames_ms": gaps, "frames_late": late, "long_tasks_ms": tasks,
            "heap_bytes": [heap for heap, _ in held], "nodes": [nodes for _, nodes in held]}


def main():
    parser = runs.options(__doc__, repeats=9)
    for name, value in (("--tokens", 2000), ("--answers", 50), ("--answer-tokens", 100)):
        parser.add_argument(name, type=int, default=value)
    args = parser.parse_args()
    figures = runs.begin(args)
    with runs.Server(args, "--threads", "1") as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        figures |= report(args, browser, server.url + "/")
        browser.close()
    runs.write(args, figures)


if __name__ == "__main__":
    main()
