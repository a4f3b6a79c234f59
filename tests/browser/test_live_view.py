"""The live view of the web page."""
import json

import pytest
from axe_playwright_python.sync_playwright import Axe

from e2e.conftest import Server
from streams import ENDLESS, endless, until

WIDTHS = [(320, 640), (1280, 800), (2560, 1440), (3840, 2160)]


def open_live(page):
    page.tab.click("#tab-live")
    page.wait("document.querySelectorAll('.tiles dt').length > 0 && document.querySelectorAll('#live path').length > 0")


def tiles(page):
    return dict(page.tab.eval_on_selector_all(".tiles > div", "all => all.map(one => [one.children[0].innerText, one.children[1].innerText])"))


def cells(page):
    kinds = page.tab.eval_on_selector_all(".cells rect", "all => all.map(one => one.getAttribute('class'))")
    return {name: kinds.count(kind) for name, kind in {"used": "c0", "cached": "c1", "free": "cf"}.items()}


def table(page):
    """{state: blocks, tokens, share} of the table of the KV cache, which is opened."""
    details = page.tab.locator("[aria-label='KV cache'] details")
    if details.get_attribute("open") is None:
        details.locator("summary").press("Enter")
    page.wait("document.querySelectorAll('[aria-label=\"Table: KV cache\"] tbody tr').length > 0")
    rows = page.tab.eval_on_selector_all("[aria-label='Table: KV cache'] tbody tr",
                                         "all => all.map(row => [...row.children].map(one => one.innerText))")
    return {name: (int(blocks), int(tokens), share) for name, blocks, tokens, share in rows}


@pytest.fixture(scope="module")
def big():
    """A server that runs 64 sequences at once."""
    one = Server("--max-num-seqs", "64", "--kv-cache-memory", "256MiB", *ENDLESS)
    yield one.wait_until_ready()
    one.stop()


def test_the_view_shows_what_the_metrics_say(visit, start):
    server = start("--max-num-seqs", "3", *ENDLESS)
    page = visit(server)
    with endless(server, 5):
        until(lambda: server.metric("vllm:num_requests_running") == 3 and server.metric("vllm:num_requests_waiting") == 2)
        open_live(page)
        page.wait("document.querySelectorAll('#live [aria-label=Sequences] tbody tr').length === 5")
        shown = tiles(page)
        assert shown["Running"] == "3" and shown["Waiting"].startswith("2") and shown["Swapped"] == "0"
        page.tab.click("text=Pause")
        found = cells(page)
        legend = page.tab.inner_text("[aria-label='KV cache'] .legend")
        assert legend.split("\n") == [f"{n} {name}" for name, n in found.items()]
        assert sum(found.values()) == server.metrics()['penstock_kv_blocks{state="total"}'] and found["used"] > 0
        shown = table(page)
        assert {name: shown[name][0] for name in found} == found and shown["all"][0] == sum(found.values())
        page.tab.click("text=Continue")
    server.wait_until_idle()
    page.wait("document.querySelector('#live').innerText.includes('No sequence runs or waits.')")
    until(lambda: cells(page)["used"] == 0)
    blocks = {state: int(server.metrics()[f'penstock_kv_blocks{{state="{state}"}}']) for state in ("total", "used", "cached")}
    total = blocks["total"]
    right = {"used": 0, "cached": blocks["cached"], "free": total - blocks["cached"], "all": total}
    assert 0 < blocks["cached"] < total
    until(lambda: {name: row[0] for name, row in table(page).items()} == right)
    shown = table(page)
    assert all(tokens == 16 * n and share == f"{100 * n / total:.1f} %" for n, tokens, share in shown.values())
    page.tab.press("#tab-live", "ArrowLeft")
    page.wait("!document.querySelector('#chat').hidden")  # the address changes first, and the view follows it
    assert page.tab.is_visible("#input") and page.tab.evaluate("document.activeElement.id") == "tab-chat"


def test_more_blocks_than_cells_and_those_of_the_host(page, server):
    live = {**server.http.get("/penstock/live").json(), "host_blocks": {"total": 40, "used": 10, "cached": 5},
            "blocks": {"size": 16, "total": 10000, "used": 3000, "cached": 1500, "free": 5500}}
    page.tab.route("**/penstock/live", lambda route: route.fulfill(headers={"Content-Type": "text/event-stream"}, body=f"data: {json.dumps(live)}\n\n"))
    page.tab.click("#tab-live")
    page.wait("document.querySelectorAll('.cells rect').length > 0")
    found = cells(page)
    assert sum(found.values()) == 3334 and found["used"] == 1000 and found["cached"] == 500  # a cell is 3 blocks
    assert page.tab.get_attribute(".cells", "aria-label").endswith("a cell is 3 blocks")
    assert table(page) == {"used": (3000, 48000, "30.0 %"), "cached": (1500, 24000, "15.0 %"), "free": (5500, 88000, "55.0 %"),
                           "all": (10000, 160000, "100.0 %"), "swapped to the host": (10, 160, "25.0 %"), "cached by the host": (5, 80, "12.5 %")}


def test_a_user_key_sees_counts_only(visit, start):
    page = visit(start("--api-key", "user", "--admin-key", "boss"), ready=False)
    page.tab.fill("dialog input", "user")
    page.tab.press("dialog input", "Enter")
    page.tab.wait_for_selector("body[data-ready]")
    open_live(page)
    assert tiles(page)["Running"] == "0"
    assert "only an admin key shows the sequences" in page.tab.inner_text("#live")


def test_a_key_with_a_name_sees_its_own_sequences(visit, start, tmp_path):
    (tmp_path / "keys.yaml").write_text("keys:\n- {name: alice, key: one}\n- {name: bob, key: two}\n")
    server = start("--api-key-file", str(tmp_path / "keys.yaml"), *ENDLESS)
    page = visit(server, ready=False)
    page.tab.fill("dialog input", "one")
    page.tab.press("dialog input", "Enter")
    page.tab.wait_for_selector("body[data-ready]")
    open_live(page)
    with endless(server, 2, {"Authorization": "Bearer two"}):
        page.wait("document.querySelector('.tiles dd').innerText === '2'")
        assert "No sequence of your key runs or waits." in page.tab.inner_text("#live")
        with endless(server, 1, {"Authorization": "Bearer one"}):
            page.wait("document.querySelectorAll('#live [aria-label=Sequences] tbody tr').length === 1")
            assert "Those of your key: 1" in page.tab.inner_text("#live")


def test_a_server_that_restarts_is_watched_again(visit, start):
    server = start()
    page = visit(server)
    open_live(page)
    server.process.kill()
    server.process.wait()
    page.tab.wait_for_selector("#live .problem >> text=Trying again.")
    again = Server(port=server.port)
    try:
        again.wait_until_ready()
        page.wait("document.querySelector('#live .problem').hidden")
    finally:
        again.stop()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("n", [0, 3, 64])
def test_pictures_and_axe(visit, big, n, theme):
    big.wait_until_idle()
    page = visit(big, color_scheme=theme)
    with endless(big, n):
        open_live(page)
        page.wait(f"document.querySelectorAll('#live [aria-label=Sequences] tbody tr').length === {n}")
        page.tab.wait_for_timeout(3000)  # so that the pictures have curves
        page.tab.click("text=Pause")
    page.tab.click("[aria-label='Tokens per second'] summary")
    table(page)
    for width, height in WIDTHS:
        page.tab.set_viewport_size({"width": width, "height": height})
        page.picture(f"live_{n}_{width}_{theme}")
        assert page.tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    found = Axe().run(page.tab)
    assert not found.violations_count, found.generate_report()
