"""--state-dir: stored and background responses, Idempotency-Key, and what kill -9 leaves of them.

PENSTOCK_KILLS is the number of kills at random moments (`make soak` has 200).
"""
import concurrent.futures
import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import time

import httpx
import openai
import pytest

from conftest import MODEL, NAME, Server
from streams import until

KILLS = int(os.environ.get("PENSTOCK_KILLS", "10"))
FLAGS = ("--max-model-len", "8192", "--kv-cache-memory", "256MiB", "--max-num-seqs", "8")
LONG = 7000  # tokens of a response that outlasts a test, also on a fast machine
SAID = "Tell a story about a river."


def serve(folder, *flags, **options):
    return Server(*FLAGS, "--state-dir", str(folder), *flags, **options).wait_until_ready()


def client_of(server, key="none"):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0, timeout=120)


def create(client, said=SAID, max_output_tokens=12, seed=None, **fields):
    """A response of exactly so many tokens. Without a seed its text is random, and an end token would make it short."""
    return client.responses.create(model=NAME, input=said, max_output_tokens=max_output_tokens,
                                   extra_body={"seed": seed, "ignore_eos": True}, **fields)


def plain(events):
    """Events as data, without the ids and times in which two equal requests differ."""
    def strip(value):
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items() if k not in ("id", "item_id", "created_at", "background")}
        return [strip(v) for v in value] if isinstance(value, list) else value
    return [strip(event.model_dump()) for event in events]


@pytest.fixture(scope="module")
def keeper(tmp_path_factory):
    one = serve(tmp_path_factory.mktemp("state"))
    yield one
    one.stop()


@pytest.fixture(scope="module")
def client(keeper):
    with client_of(keeper) as one:
        yield one


# ---- stored responses -----------------------------------------------------------------------------------------------


def test_a_response_is_stored_unless_the_client_refuses(client):
    response = create(client, temperature=0)
    assert client.responses.retrieve(response.id) == response and response.store
    refused = create(client, temperature=0, store=False)
    assert refused.output_text == response.output_text and refused.store is False
    with pytest.raises(openai.NotFoundError, match="not stored"):
        client.responses.retrieve(refused.id)
    client.responses.delete(response.id)
    for call in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            call(response.id)


def test_a_conversation_goes_on_from_a_stored_response(client, keeper):
    first = create(client, "My name is Ada.", temperature=0, instructions="Be brief.")
    second = create(client, "What is my name?", temperature=0, previous_response_id=first.id)
    history = [{"role": "user", "content": "My name is Ada."}, {"role": "assistant", "content": first.output_text},
               {"role": "user", "content": "What is my name?"}]
    assert second.output_text == create(client, history, temperature=0).output_text
    assert second.previous_response_id == first.id
    third = create(client, "Why?", temperature=0, previous_response_id=second.id)
    assert third.usage.input_tokens > second.usage.input_tokens
    counted = keeper.post("/v1/responses/input_tokens", {"model": NAME, "input": "Why?", "previous_response_id": second.id})
    assert counted.json()["input_tokens"] == third.usage.input_tokens
    with pytest.raises(openai.BadRequestError, match="Previous response with id 'resp_x' not found") as wrong:
        create(client, previous_response_id="resp_x")
    assert wrong.value.code == "previous_response_not_found"
    with pytest.raises(openai.BadRequestError):
        create(client, background=True, store=False)


def test_an_answer_is_continued_at_once(client):
    """A client has the last byte before the disk has the answer."""
    response = create(client, "One.", max_output_tokens=1)
    for _ in range(30):
        response = create(client, "Two.", max_output_tokens=1, previous_response_id=response.id)
        assert response.status in ("incomplete", "completed")


def test_a_background_response_is_followed_from_any_event(client):
    response = create(client, max_output_tokens=16, background=True, seed=5)
    assert response.status == "queued" and response.background and response.output == []
    events = list(client.responses.retrieve(response.id, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].response == client.responses.retrieve(response.id) and events[-1].response.status == "incomplete"
    for after in (0, 7, len(events) - 2):
        assert list(client.responses.retrieve(response.id, stream=True, starting_after=after)) == events[after + 1:]
    assert list(client.responses.retrieve(response.id, stream=True, starting_after=len(events) - 1)) == []
    with create(client, max_output_tokens=16, stream=True, seed=5) as unbroken:
        assert plain(unbroken) == plain(events)
    assert client.responses.cancel(response.id).status == "incomplete"  # it has ended


def test_a_background_response_is_cancelled_or_deleted(client, keeper):
    response = create(client, max_output_tokens=LONG, background=True)
    assert client.responses.retrieve(response.id).status in ("queued", "in_progress")
    cancelled = client.responses.cancel(response.id)
    assert cancelled.status == "cancelled" and client.responses.retrieve(response.id) == cancelled
    response = create(client, max_output_tokens=LONG, background=True)
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
    keeper.wait_until_idle()
    with create(client, max_output_tokens=LONG, stream=True) as events:
        first = next(iter(events))
        with pytest.raises(openai.BadRequestError, match="background"):
            client.responses.cancel(first.response.id)


def test_a_client_that_leaves_ends_only_a_response_in_the_foreground(client):
    with create(client, max_output_tokens=LONG, stream=True) as events:
        first = next(events)
    left = until(lambda: (now := client.responses.retrieve(first.response.id)).status not in ("queued", "in_progress") and now)
    assert left.status == "cancelled"
    with create(client, max_output_tokens=20, stream=True, background=True, seed=2) as events:
        seen = [next(events) for _ in range(5)]
    rest = list(client.responses.retrieve(seen[0].response.id, stream=True, starting_after=4))
    assert seen + rest == list(client.responses.retrieve(seen[0].response.id, stream=True))
    assert rest[-1].response.usage.output_tokens == 20


def test_keys_see_only_their_own_responses(tmp_path):
    server = serve(tmp_path, "--api-key", "one,two")
    try:
        with client_of(server, "one") as one, client_of(server, "two") as two:
            response = create(one)
            assert one.responses.retrieve(response.id) == response
            for call in (two.responses.retrieve, two.responses.delete, two.responses.cancel):
                with pytest.raises(openai.NotFoundError):
                    call(response.id)
            with pytest.raises(openai.BadRequestError):
                create(two, previous_response_id=response.id)
            answers = [server.post("/v1/completions", {"prompt": "a", "max_tokens": 4}, headers={
                "Authorization": f"Bearer {key}", "Idempotency-Key": "same"}).json()["id"] for key in ("one", "two", "one")]
            assert answers[0] == answers[2] != answers[1]
    finally:
        server.stop()


@pytest.mark.parametrize("query", ["starting_after=x", "starting_after=-1", "starting_after=1e3",
                                   "starting_after=99999999999999999999"])
def test_a_wrong_place_in_a_stream_is_refused(client, keeper, query):
    response = create(client, max_output_tokens=1)
    answer = keeper.http.get(f"/v1/responses/{response.id}?stream=true&{query}")
    assert answer.status_code == 400 and "starting_after" in answer.text
    assert keeper.http.put(f"/v1/responses/{response.id}").headers["Allow"] == "GET, HEAD, POST, DELETE, OPTIONS"


# ---- input items ----------------------------------------------------------------------------------------------------


def texts(page):
    """The texts of a page of items, which are messages."""
    return [(item.role, item.content[0].text) for item in page.data]


def test_the_items_of_an_input_are_listed_in_pages(client, keeper):
    first = create(client, "One.", temperature=0)
    second = create(client, [{"role": "user", "content": "Two."}, {"role": "assistant", "content": "Yes."},
                             {"role": "user", "content": [{"type": "input_text", "text": "Three."}]}],
                    temperature=0, previous_response_id=first.id)
    said = [("user", "One."), ("assistant", first.output_text), ("user", "Two."), ("assistant", "Yes."), ("user", "Three.")]
    list_items = client.responses.input_items.list
    assert texts(list_items(second.id, order="asc")) == said
    assert texts(list_items(second.id)) == said[::-1]
    page = list_items(second.id, limit=2)
    assert texts(page) == [said[4], said[3]] and page.has_more
    assert page.first_id == page.data[0].id and page.last_id == page.data[1].id
    whole = [item for item in list_items(second.id, limit=2, order="asc")]  # the client asks for page after page
    assert [item.id for item in whole] == [item.id for item in list_items(second.id, order="asc").data]
    assert whole[1].id == first.output[0].id and len({item.id for item in whole}) == 5
    assert not list_items(second.id, after=whole[0].id).has_more
    for query in ("limit=0", "limit=101", "limit=x", "limit=", "order=up", "after=msg_none", "after=" + "x" * 129):
        wrong = keeper.http.get(f"/v1/responses/{second.id}/input_items?{query}")
        assert wrong.status_code == 400 and wrong.json()["error"]["param"] == query.split("=")[0], query


def test_a_response_without_a_record_has_no_items(client, keeper):
    refused = create(client, store=False, max_output_tokens=1)
    deleted = create(client, max_output_tokens=1)
    client.responses.delete(deleted.id)
    for name in (refused.id, deleted.id, "resp_unknown"):
        with pytest.raises(openai.NotFoundError, match=f"no response '{name}'"):
            client.responses.input_items.list(name)
    assert keeper.http.get("/v1/responses/a/b/input_items").status_code == 404
    assert keeper.http.delete(f"/v1/responses/{deleted.id}/input_items").status_code == 404


def test_items_are_listed_while_a_response_runs_and_after_a_kill(tmp_path):
    server = serve(tmp_path, "--api-key", "one,two")
    with client_of(server, "one") as client, client_of(server, "two") as other:
        finished = create(client, max_output_tokens=2)
        running = create(client, max_output_tokens=LONG, background=True)
        lists = [client.responses.input_items.list(one.id).data for one in (finished, running)]
        assert client.responses.retrieve(running.id).status in ("queued", "in_progress")
        assert [items[0].content[0].text for items in lists] == [SAID, SAID]
        with pytest.raises(openai.NotFoundError):
            other.responses.input_items.list(running.id)
    server.process.kill()
    server.process.wait()
    server.stop()
    server = serve(tmp_path, "--api-key", "one,two", "--drain-timeout", "0")  # the long response still runs at the end
    try:
        with client_of(server, "one") as client:
            assert [client.responses.input_items.list(one.id).data for one in (finished, running)] == lists
    finally:
        server.stop()


# ---- Idempotency-Key ------------------------------------------------------------------------------------------------

BODIES = {
    "/v1/completions": {"prompt": ["Water", "Fire"], "max_tokens": 8},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "stream": True},
    "/v1/messages": {"model": NAME, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "stream": True},
    "/api/chat": {"model": NAME, "messages": [{"role": "user", "content": "hi"}], "options": {"num_predict": 8}},
    "/v1/responses": {"model": NAME, "input": "hi", "max_output_tokens": 8, "store": False},
    "/v1/embeddings": {"input": "Water"},
}


@pytest.mark.parametrize("path", BODIES)
def test_a_repeated_request_gets_the_first_answer(keeper, path):
    headers = {"Idempotency-Key": f"key of {path}"}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: repeat(keeper, path, BODIES[path], headers), range(4)))
    answers.append(repeat(keeper, path, BODIES[path], headers))
    assert len({answer.content for answer in answers}) == 1 and answers[0].status_code == 200
    other = keeper.post(path, {**BODIES[path], "user": "u"}, headers=headers)
    assert other.status_code == 400 and "Idempotency-Key was used with another request" in other.text
    assert keeper.post(path, BODIES[path]).content != answers[0].content or path == "/v1/embeddings"


def repeat(server, path, body, headers):
    """A request that is repeated while the first one is being prepared gets a 429 and tries again."""
    while True:
        answer = httpx.post(server.url + path, json=body, headers=headers, timeout=120)
        if answer.status_code != 429:
            return answer
        time.sleep(0.05)


def test_a_stream_goes_on_after_its_last_event_id(keeper):
    headers = {"Idempotency-Key": "ids"}
    body = BODIES["/v1/chat/completions"]
    whole = keeper.post("/v1/chat/completions", body, headers=headers).text
    events = whole.split("\n\n")[:-1]
    assert [event.split("\n")[0] for event in events] == [f"id: {i}" for i in range(len(events))]
    assert events[-1].endswith("data: [DONE]")
    for last in range(len(events)):
        rest = keeper.post("/v1/chat/completions", body, headers={**headers, "Last-Event-ID": str(last)}).text
        assert rest.split("\n\n")[:-1] == events[last + 1:]
    for wrong in ("", "x" * 256):
        assert keeper.post("/v1/completions", {"prompt": "a"}, headers={"Idempotency-Key": wrong}).status_code == 400


def test_a_refused_request_is_not_kept(keeper):
    headers = {"Idempotency-Key": "refused"}
    assert keeper.post("/v1/completions", {"prompt": "a", "max_tokens": -5}, headers=headers).status_code == 400
    assert keeper.post("/v1/completions", {"prompt": "a", "max_tokens": 2}, headers=headers).status_code == 200


# ---- kill -9 --------------------------------------------------------------------------------------------------------


def follow(server, response, seen):
    """Reads events after those that were seen, until the end or until the server is gone. Returns True at the end."""
    try:
        with client_of(server) as client:
            extra = {"starting_after": seen[-1].sequence_number} if seen else {}
            for event in client.responses.retrieve(response, stream=True, **extra):
                seen.append(event)
    except (openai.APIConnectionError, httpx.TransportError):
        return False
    return seen[-1].type in ("response.completed", "response.incomplete")


def test_no_promise_is_lost_and_no_stream_has_a_seam(tmp_path):
    rng = random.Random(7)
    server = serve(tmp_path)
    streams, keyed, kills = {}, {}, 0
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        while kills < KILLS or not all(streams.values()):
            alive = kills < KILLS
            with client_of(server) as client, contextlib.suppress(openai.APIConnectionError):
                for i in range(2 if alive and len(streams) < 4 * KILLS else 0):
                    response = create(client, f"{SAID} {len(streams)}", max_output_tokens=rng.randrange(4, 24), background=True)
                    streams[response.id] = []
            with contextlib.suppress(httpx.TransportError):
                if alive:
                    body = {"prompt": f"River {kills}", "max_tokens": 12}
                    keyed[f"k{kills}"] = body
                    server.http.post("/v1/completions", json=body, headers={"Idempotency-Key": f"k{kills}"}, timeout=0.2)
            open_ones = [(r, seen) for r, seen in streams.items()
                         if not seen or not seen[-1].type.startswith(("response.completed", "response.incomplete"))]
            running = [pool.submit(follow, server, r, seen) for r, seen in open_ones]
            if alive:
                time.sleep(rng.random() * 0.6)
                server.process.kill()
                server.process.wait()
                kills += 1
            ended = [one.result() for one in running]
            if alive:
                server.stop()
                server = serve(tmp_path)
            elif all(ended):
                break
    try:
        check_streams(server, streams)
        for key, body in keyed.items():
            first = repeat(server, "/v1/completions", body, {"Idempotency-Key": key})
            assert first.status_code == 200 and repeat(server, "/v1/completions", body, {"Idempotency-Key": key}).content == first.content
    finally:
        server.stop()


def check_streams(server, streams):
    assert streams
    with client_of(server) as client:
        for i, (response, seen) in enumerate(streams.items()):
            assert [event.sequence_number for event in seen] == list(range(len(seen))), response
            assert list(client.responses.retrieve(response, stream=True)) == seen
            assert client.responses.retrieve(response) == seen[-1].response


def test_the_same_seed_gives_the_same_events_after_a_kill(tmp_path):
    server = serve(tmp_path)
    with client_of(server) as client, create(client, max_output_tokens=30, stream=True, seed=11) as events:
        unbroken = list(events)
        broken = create(client, max_output_tokens=30, background=True, stream=True, seed=11)
        seen = [next(broken) for _ in range(12)]
        server.process.kill()
        server.process.wait()
    server.stop()
    server = serve(tmp_path)
    try:
        assert follow(server, seen[0].response.id, seen)
        assert plain(seen) == plain(unbroken)
    finally:
        server.stop()


KEYED = {"json": {"prompt": "a", "max_tokens": LONG, "ignore_eos": True}, "headers": {"Idempotency-Key": "k"}}


def leave_unfinished(folder):
    """Kills a server with an unfinished response and an unfinished request with a key. Returns the response's id."""
    server = serve(folder)
    with client_of(server) as client, concurrent.futures.ThreadPoolExecutor(1) as pool:
        response = create(client, max_output_tokens=LONG, background=True)
        keyed = pool.submit(httpx.post, server.url + "/v1/completions", timeout=120, **KEYED)
        until(lambda: server.metrics()['penstock_promises{state="open"}'] == 2)
        server.process.kill()
        server.process.wait()
        assert isinstance(keyed.exception(), httpx.TransportError)
    server.stop()
    return response.id


def test_another_option_ends_promises_with_an_error_and_not_with_other_bytes(tmp_path):
    response = leave_unfinished(tmp_path)
    server = serve(tmp_path, "--kv-cache-dtype", "q8_0")
    try:
        with client_of(server) as client:
            events = list(client.responses.retrieve(response, stream=True, starting_after=3))
            assert [event.type for event in events] == ["response.failed"] and events[0].sequence_number == 4
            failed = client.responses.retrieve(response)
            assert failed.status == "failed" and "the type of the KV cache differs" in failed.error.message and failed.output == []
        again = server.http.post("/v1/completions", **KEYED)
        assert again.status_code == 500 and "the type of the KV cache differs" in again.text
    finally:
        server.stop()


def test_a_shutdown_leaves_promises_to_the_next_start(tmp_path):
    server = serve(tmp_path, "--drain-timeout", "0")
    with client_of(server) as client:
        response = create(client, max_output_tokens=60, background=True)
        seen = []
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            reader = pool.submit(follow, server, response.id, seen)
            until(lambda: len(seen) >= 5)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(60) == 0
            reader.exception()
    server.stop()
    server = serve(tmp_path)
    try:
        assert follow(server, response.id, seen)
        assert [event.sequence_number for event in seen] == list(range(len(seen)))
    finally:
        server.stop()


# ---- the folder -----------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_promises_and_nothing_else(tmp_path):
    server = serve(tmp_path)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (40_000, 40_000))
    try:
        with client_of(server) as client:
            said = "water " * 500
            answers = [server.post("/v1/responses", {"model": NAME, "input": said, "max_output_tokens": 1}) for _ in range(20)]
            refused = [answer for answer in answers if answer.status_code == 503]
            assert answers[0].status_code == 200 and refused, [answer.status_code for answer in answers]
            assert "cannot be kept in --state-dir" in refused[0].json()["error"]["message"]
            assert server.metrics()['penstock_promises_refused_total{reason="disk"}'] == len(refused)
            assert create(client, max_output_tokens=2, store=False).output_text
            assert server.complete(max_tokens=2)
    finally:
        server.stop()


def test_metrics_count_promises_before_and_after_a_kill(tmp_path):
    one_by_one = ("--max-num-seqs", "1", "--threads", "1")
    server = serve(tmp_path, *one_by_one)
    with client_of(server) as client:
        create(client, max_output_tokens=2)
        running = server.http.stream("POST", "/v1/completions", json={"prompt": "a", "max_tokens": LONG, "ignore_eos": True, "stream": True})
        with running as lines:
            next(lines.iter_lines())  # it takes the only place, so the others are open at the kill
            for _ in range(2):
                create(client, max_output_tokens=500, background=True)
            read = server.metrics()
            server.process.kill()
            server.process.wait()
        assert read['penstock_promises{state="open"}'] == 2 and read["penstock_promises_recovered_total"] == 0
        assert 3 <= read["penstock_journal_syncs_total"] <= 4
        assert read["penstock_journal_bytes"] == sum(file.stat().st_size for file in tmp_path.glob("*") if file.name != "lock")
    server.stop()
    server = serve(tmp_path, *one_by_one)
    try:
        read = server.metrics()
        assert read["penstock_promises_recovered_total"] == read['penstock_promises{state="open"}'] == 2
        assert read['penstock_promises{state="finished"}'] == 1 and read["penstock_journal_syncs_total"] == 0
        until(lambda: server.metrics()['penstock_promises{state="finished"}'] == 3)
        assert server.metrics()["penstock_promises_recovered_total"] == 2
    finally:
        server.stop()


def test_a_second_server_on_the_folder_does_not_start(keeper, tmp_path):
    server = serve(tmp_path)
    second = subprocess.run([server.process.args[0], "serve", "--model", MODEL, "--port", "0", "--state-dir", str(tmp_path)],
                            capture_output=True, text=True, timeout=60)
    assert second.returncode != 0 and f"another process (pid {server.process.pid})" in second.stderr
    server.stop()


def test_without_a_folder_nothing_is_stored(server):
    for fields in ({"background": True}, {"previous_response_id": "resp_1"}):
        answer = server.post("/v1/responses", {"model": NAME, "input": "hi", **fields})
        assert answer.status_code == 400 and "--state-dir" in answer.json()["error"]["message"]
    answer = server.http.get("/v1/responses/resp_1")
    assert answer.status_code == 404 and "--state-dir" in answer.json()["error"]["message"]
    assert json.loads(server.post("/v1/responses", {"model": NAME, "input": "hi", "max_output_tokens": 1}).text)["store"] is False
