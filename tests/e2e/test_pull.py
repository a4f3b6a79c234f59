"""Models by name: from a hub on loopback into the cache that huggingface_hub also reads."""
import contextlib
import json
import os
import pathlib
import pty
import random
import resource
import subprocess

import filelock
import pytest

import hub as hubs
from conftest import BINARY, MODEL, Server, environment
from hub import COMMIT, Hub

NAME = "river/bank-GGUF"
SMALL = random.Random(1).randbytes(300_000)
LARGE = random.Random(2).randbytes(900_000)


@pytest.fixture
def hub():
    one = Hub()
    one.files = {f"{NAME}/README.md": b"a bank", f"{NAME}/bank-Q8_0.gguf": LARGE, f"{NAME}/bank-Q4_K_M.gguf": SMALL,
                 f"{NAME}/mmproj-bank-Q4_K_M.gguf": b"projector"}
    yield one
    one.shutdown()
    one.server_close()


@pytest.fixture
def other():
    one = Hub()
    yield one
    one.shutdown()
    one.server_close()


class Place:
    """A cache, and the program that uses it."""

    def __init__(self, folder, hub):
        self.home = folder / "home"
        self.cache = self.home / "hub"
        self.variables = {"HF_HOME": str(self.home), "HF_ENDPOINT": hub.url, "HF_HUB_DOWNLOAD_TIMEOUT": "30"}

    def environment(self, **more):
        kept = {key: value for key, value in environment().items() if not key.startswith("HF_")}
        return {**kept, **self.variables, **more}

    def start(self, *arguments, limit=None, **variables):
        def bound():
            if limit:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return subprocess.Popen([BINARY, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                text=True, env=self.environment(**variables), preexec_fn=bound)

    def run(self, *arguments, **more):
        process = self.start(*arguments, **more)
        out, err = process.communicate(timeout=120)
        assert process.returncode in (0, 1, 2), err
        return process.returncode, out, err

    def pull(self, name=NAME, **more):
        """Pulls a model that must come. Returns its path."""
        code, out, err = self.run("pull", name, **more)
        assert code == 0, err
        return pathlib.Path(out.removesuffix("\n"))

    def fails(self, name=NAME, **more):
        code, out, err = self.run("pull", name, **more)
        assert code == 1 and not out, (code, out, err)
        return err

    def repo(self, name=NAME):
        return self.cache / f"models--{name.replace('/', '--')}"

    def blobs(self, name=NAME):
        folder = self.repo(name) / "blobs"
        return sorted(os.listdir(folder)) if folder.exists() else []


@pytest.fixture
def place(tmp_path, hub):
    return Place(tmp_path, hub)


def ask_hub_library(place, code, **variables):
    """Runs a program with huggingface_hub in another process, which reads its settings when it is imported."""
    python = pathlib.Path(os.sys.executable)
    done = subprocess.run([python, "-c", f"import huggingface_hub as h\n{code}"], capture_output=True, text=True,
                          env=place.environment(HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1",
                                                HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_DOWNLOAD_TIMEOUT="10", **variables))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# ---- what is fetched --------------------------------------------------------------------------------------------------


def test_a_pulled_file_is_in_the_cache_as_huggingface_hub_reads_it(place, hub):
    path = place.pull()
    assert path == place.repo() / "snapshots" / COMMIT / "bank-Q4_K_M.gguf" and path.read_bytes() == SMALL
    assert os.readlink(path) == f"../../blobs/{hubs.sha256(SMALL)}"
    assert (place.repo() / "refs/main").read_text() == COMMIT and place.blobs() == [hubs.sha256(SMALL)]
    found = ask_hub_library(place, f"print(h.hf_hub_download('{NAME}', 'bank-Q4_K_M.gguf', local_files_only=True))\n"
                                   "info = h.scan_cache_dir()\nassert not info.warnings, info.warnings\n"
                                   f"assert info.size_on_disk == {len(SMALL)}")
    assert found == str(path)
    before = len(hub.fetched())
    found = ask_hub_library(place, f"print(h.hf_hub_download('{NAME}', 'bank-Q4_K_M.gguf'))")  # asks the hub: current
    assert found == str(path) and len(hub.fetched()) == before


def test_a_file_that_huggingface_hub_pulled_is_found(place, hub):
    path = ask_hub_library(place, f"print(h.hf_hub_download('{NAME}', 'bank-Q8_0.gguf'))")
    hub.requests.clear()
    for name in (NAME, f"{NAME}:q8_0", f"{NAME}/bank-Q8_0.gguf"):
        code, out, err = place.run("pull", "--offline", name)
        assert (code, out) == (0, path + "\n"), err
    assert not hub.requests
    assert place.pull(f"{NAME}:Q8_0") == pathlib.Path(path) and not hub.fetched()


@pytest.mark.parametrize("name, file", [(f"{NAME}:Q8_0", "bank-Q8_0.gguf"), (f"{NAME}:q4_k_m", "bank-Q4_K_M.gguf"),
                                        (f"{NAME}/bank-Q8_0.gguf", "bank-Q8_0.gguf")])
def test_a_tag_in_any_case_or_a_file_chooses(place, hub, name, file):
    assert place.pull(name).name == file
    assert hub.fetched() == [file]


def test_without_q4_k_m_the_first_file_is_chosen_and_a_wrong_tag_lists_the_files(place, hub):
    del hub.files[f"{NAME}/bank-Q4_K_M.gguf"]
    hub.files[f"{NAME}/bank-Q5_K.gguf"] = SMALL
    assert place.pull().name == "bank-Q5_K.gguf"
    assert "it has bank-Q5_K.gguf, bank-Q8_0.gguf" in place.fails(f"{NAME}:Q2_K")


def test_parts_come_together(place, hub):
    hub.files = {f"{NAME}/Q4_K_M/bank-Q4_K_M-0000{i}-of-00003.gguf": SMALL[i:] for i in (1, 2, 3)}
    assert place.pull().name == "bank-Q4_K_M-00001-of-00003.gguf"
    assert len(place.blobs()) == 3
    (place.repo() / f"snapshots/{COMMIT}/Q4_K_M/bank-Q4_K_M-00002-of-00003.gguf").unlink()
    assert "forbids" in place.fails(HF_HUB_OFFLINE="1")
    del hub.files[f"{NAME}/Q4_K_M/bank-Q4_K_M-00003-of-00003.gguf"]
    assert "lacks its part 3 of 3" in place.fails()


FOLDER = {"config.json": b"{}", "generation_config.json": b"{ }", "tokenizer.json": b"{  }", "tokenizer_config.json": b"[1]",
          "chat_template.jinja": b"x", "model-00001-of-00002.safetensors": SMALL, "model-00002-of-00002.safetensors": LARGE,
          "model.safetensors.index.json": json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors",
                                                                     "b": "model-00002-of-00002.safetensors"}}).encode(),
          "modules.json": b"[]", "1_Pooling/config.json": b"{   }"}
EXTRA = {"README.md": b"#", "pytorch_model.bin": b"p", "onnx/model.onnx": b"o", "model-00001-of-00009.safetensors": b"other",
         "consolidated.safetensors": b"c", ".gitattributes": b"g", "original/config.json": b"{}"}


def test_of_a_folder_exactly_the_files_that_are_needed(place, hub):
    hub.files = {f"river/folder/{name}": data for name, data in {**FOLDER, **EXTRA}.items()}
    path = place.pull("river/folder")
    assert sorted(hub.fetched()) == sorted(FOLDER)
    assert {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()} == FOLDER
    assert os.readlink(path / "1_Pooling/config.json").startswith("../../../blobs/")
    found = ask_hub_library(place, "print(h.snapshot_download('river/folder', local_files_only=True))")
    assert found == str(path)
    (path / "model-00002-of-00002.safetensors").unlink()
    assert "forbids" in place.fails("river/folder", HF_HUB_OFFLINE="1")
    assert place.pull("river/folder") == path and len(hub.fetched()) == len(FOLDER)  # only its link was missing


# ---- broken transfers -------------------------------------------------------------------------------------------------


def test_a_transfer_that_is_cut_at_every_tenth_continues(place, hub):
    for tenth in range(1, 10):
        hub.requests.clear()
        hub.faults = [hubs.cut(tenth / 10)]
        assert place.pull().read_bytes() == SMALL
        starts = [headers.get("Range") for _, path, headers in hub.requests if "/resolve/" in path]
        assert starts == [None, f"bytes={len(SMALL) * tenth // 10}-"]
        place.run("rm", NAME)
    hub.faults = [hubs.cut(tenth / 10) for tenth in range(10)]  # the first sends nothing
    assert place.pull().read_bytes() == SMALL


def test_a_later_process_continues(place, hub):
    hub.faults = [hubs.cut(0.5), hubs.code(403)]
    assert "(403)" in place.fails()
    assert place.blobs() == [hubs.sha256(SMALL) + ".incomplete"] and not (place.repo() / "refs").exists()
    assert place.run("list")[1].endswith(f"  {NAME}  (incomplete: pull it again)\n")
    hub.requests.clear()
    assert place.pull().read_bytes() == SMALL
    assert hub.requests[-1][2]["Range"] == f"bytes={len(SMALL) // 2}-"


def test_a_hub_that_ignores_ranges_sends_the_file_again(place, hub):
    hub.faults = [hubs.cut(0.5), hubs.without_range]
    assert place.pull().read_bytes() == SMALL


@pytest.mark.parametrize("left", [b"x" * 1000, b"x" * len(SMALL), b"x" * (len(SMALL) + 5)])
def test_wrong_bytes_in_the_cache_do_not_survive(place, hub, left):
    path = place.repo() / "blobs" / (hubs.sha256(SMALL) + ".incomplete")
    path.parent.mkdir(parents=True)
    path.write_bytes(left)
    if len(left) <= len(SMALL):
        assert "another hash" in place.fails() and place.blobs() == []
    assert place.pull().read_bytes() == SMALL


@pytest.mark.parametrize("data, text", [
    (SMALL[:-1] + b"x", "have another hash than the hub states"),
    (SMALL[:-1], "sent another bank-Q4_K_M.gguf than its listing states"),
    (SMALL + b"x", "sent more than the 300000 bytes of bank-Q4_K_M.gguf"),
    (b"", "sent another bank-Q4_K_M.gguf"),
])
def test_wrong_bytes_get_no_name(place, hub, data, text):
    hub.faults = [hubs.replaced(data)]
    assert text in place.fails()
    assert hubs.sha256(SMALL) not in place.blobs() and not list(place.repo().glob("snapshots/*/*"))
    if data != SMALL + b"x":  # whose first bytes are right
        assert place.blobs() == []
    assert place.pull().read_bytes() == SMALL


def test_another_hash_or_commit_than_the_listing_states_is_refused(place, hub):
    for header in ({"X_Linked_Etag": '"' + "0" * 64 + '"'}, {"X_Repo_Commit": "f" * 40}):
        hub.headers = header
        assert "than its listing states" in place.fails() and place.blobs() == []


def test_small_files_are_checked_too(place, hub):
    hub.files = {f"river/folder/{name}": data for name, data in FOLDER.items()}
    hub.claims = {"config.json": {"blobId": "0" * 40}}
    assert "the bytes of config.json have another hash" in place.fails("river/folder")


# ---- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number, token, text", [
    (401, None, "set HF_TOKEN for a private or gated model"), (401, "hf_x", "refuses the token"),
    (403, "hf_x", "ask for it on the model's page"), (404, None, "the hub has no river/bank-GGUF (404); check the name")])
def test_a_refusal_says_what_helps_and_is_not_repeated(place, hub, number, token, text):
    hub.listing_faults = [hubs.code(number)] * 9
    err = place.fails(**({"HF_TOKEN": token} if token else {}))
    assert text in err and len(hub.requests) == 1 and "hf_x" not in err


def test_too_many_requests_waits_as_long_as_the_hub_says(place, hub):
    hub.faults = [hubs.code(429, Retry_After="1")]
    assert place.pull().read_bytes() == SMALL and len(hub.fetched()) == 2
    place.run("rm", NAME)
    hub.listing_faults = [hubs.code(429, Retry_After="7200")]
    assert "come back in 120 minutes" in place.fails()


def test_errors_of_the_hub_are_tried_again_and_then_reported(place, hub):
    hub.listing_faults = [hubs.code(500), hubs.code(502)]
    hub.faults = [hubs.code(503), hubs.code(504)]
    assert place.pull().read_bytes() == SMALL
    place.run("rm", NAME)
    hub.requests.clear()
    hub.listing_faults = [hubs.code(503, b"closed for repairs")] * 9
    err = place.fails(HF_HUB_DOWNLOAD_TIMEOUT="0.1")
    assert "with 503: closed for repairs" in err and len(hub.requests) == 6


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"sha": "main", "siblings": []}', b'{"sha": 1}'])
def test_an_answer_that_is_no_listing_is_refused(place, hub, body):
    hub.listing_faults = [hubs.code(200, body)]
    assert "hub's answer" in place.fails().replace("The hub", "the hub")


def test_a_failure_with_an_endless_body_ends(place, hub):
    hub.listing_faults = [hubs.code(403, b"no" * 5_000_000)]
    assert "does not allow this access" in place.fails()


@pytest.mark.parametrize("endpoint", ["http://me:secret@127.0.0.1:1/hub", "ftp://secret", "secret"])
def test_an_endpoint_is_a_url_without_a_password(place, hub, endpoint):
    code, _, err = place.run("pull", NAME, HF_ENDPOINT=endpoint)
    assert code == 2 and "HF_ENDPOINT must" in err and "me:" not in err


def test_a_hub_that_hangs_is_left_and_asked_again(place, hub):
    hub.faults = [hubs.hang(0.5)]
    code, _, err = place.run("pull", NAME, HF_HUB_DOWNLOAD_TIMEOUT="0.5")
    assert code == 0 and "was silent for 0.5 s; trying again" in err
    place.variables["HF_ENDPOINT"] = "http://127.0.0.1:1"
    assert "connect" in place.fails(HF_HUB_DOWNLOAD_TIMEOUT="0.05")


# ---- the token --------------------------------------------------------------------------------------------------------


def test_the_token_goes_to_the_hub_and_not_along_redirects(place, hub, other):
    other.files, hub.redirects_to = hub.files, other.url
    assert place.pull(HF_TOKEN="hf_secret").read_bytes() == SMALL
    assert [headers.get("Authorization") for _, _, headers in hub.requests] == ["Bearer hf_secret"] * 2
    assert len(other.requests) == 1 and "Authorization" not in other.requests[0][2]
    assert "hf_secret" not in str(other.requests)


def test_an_expired_link_to_another_host_is_asked_for_again(place, hub, other):
    other.files, hub.redirects_to = hub.files, other.url
    other.listing_faults = [hubs.code(403)]
    assert place.pull().read_bytes() == SMALL and len(hub.fetched()) == 2


def test_a_circle_of_redirects_and_other_schemes_end(place, hub):
    def redirect(to):
        return lambda handler: handler.answer(302, Location=to) or True
    hub.listing_faults = [redirect(hub.url + "/api/models/x/y")] * 20
    assert "redirects river/bank-GGUF more than 8 times" in place.fails()
    hub.listing_faults = [redirect("file:///etc/passwd")]
    assert "which is not https" in place.fails()


@pytest.fixture
def certificate(tmp_path):
    """A key and its certificate, by the program that Debian's ca-certificates needs too."""
    path = str(tmp_path / "certificate.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", path,
                    "-out", path + ".public", "-subj", "/CN=hub", "-addext", "subjectAltName=IP:127.0.0.1"],
                   check=True, capture_output=True)
    with open(path, "a") as file:
        file.write(pathlib.Path(path + ".public").read_text())
    return path


def test_a_hub_with_https_must_have_a_known_certificate(tmp_path, other, certificate):
    hub = Hub(certificate=certificate)
    try:
        hub.files = other.files = {f"{NAME}/bank-Q4_K_M.gguf": SMALL}
        place = Place(tmp_path, hub)
        err = place.fails(HF_TOKEN="hf_secret")
        assert "certificate" in err and "trying again" not in err and not hub.requests
        assert place.pull(SSL_CERT_FILE=certificate).read_bytes() == SMALL
        place.run("rm", NAME)
        hub.redirects_to = other.url  # http
        assert "which is not https" in place.fails(SSL_CERT_FILE=certificate) and not other.requests
    finally:
        hub.shutdown()
        hub.server_close()


def test_the_token_file_is_used_and_a_token_with_line_ends_is_refused(place, hub):
    place.home.mkdir()
    (place.home / "token").write_text("hf_filed\n")
    place.pull()
    assert {headers.get("Authorization") for _, _, headers in hub.requests} == {"Bearer hf_filed"}
    code, _, err = place.run("pull", NAME, HF_TOKEN="a\r\nEvil: 1")
    assert code == 2 and "correct HF_TOKEN" in err and "Evil" not in err


# ---- this machine -----------------------------------------------------------------------------------------------------


def test_room_on_the_disk_is_checked_before_the_first_byte(place, hub):
    hub.claims = {"bank-Q4_K_M.gguf": {"lfs": {"size": 1 << 45, "sha256": "0" * 64}}}
    err = place.fails()
    assert "needs 35184372.1 MB more on the disk" in err and "--models-dir" in err and not hub.fetched()


def test_a_disk_that_is_full_meanwhile_keeps_the_first_bytes(place, hub):
    assert "make room and pull again" in place.fails(limit=100_000)
    hub.requests.clear()
    assert place.pull().read_bytes() == SMALL
    assert hub.requests[-1][2]["Range"] == "bytes=100000-"


def test_two_at_once_fetch_once(place, hub):
    hub.faults = [hubs.slow(0.5)]
    both = [place.start("pull", NAME) for _ in range(2)]
    ends = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert hub.fetched() == ["bank-Q4_K_M.gguf"] and place.blobs() == [hubs.sha256(SMALL)]


def test_a_file_that_huggingface_hub_fetches_is_waited_for(place, hub):
    path = place.cache / ".locks" / place.repo().name / f"{hubs.sha256(SMALL)}.lock"
    path.parent.mkdir(parents=True)
    with filelock.FileLock(path):
        process = place.start("pull", NAME)
        for line in process.stderr:  # ends the test by its timeout if no such line comes
            if "another process fetches bank-Q4_K_M.gguf; waiting for it" in line:
                break
        assert not hub.fetched()
    assert process.communicate(timeout=60)[0] and process.returncode == 0 and len(hub.fetched()) == 1


def test_without_a_home_folder_the_cache_must_be_named(place, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    del place.variables["HF_HOME"]
    code, _, err = place.run("pull", NAME)
    assert code == 2 and "set HF_HOME or --models-dir" in err and not hub.requests
    assert place.run("pull", NAME, "--models-dir", "here")[1].startswith("here/models--river")
    assert place.run("pull", NAME, CACHE_DIRECTORY="unit")[1].startswith("unit/huggingface/hub/models--river")


@pytest.mark.parametrize("name", ["river/..", "../river", "river/bank/../../x.gguf", "river", "river/bank:", "/river/bank", "river//x.gguf",
                                  "river/bank/x.bin", "river/bank/.", "river/b--k", "river/bank:../x", "", "river/bank\n", "r i/bank"])
def test_a_name_that_is_none_is_refused(place, hub, name):
    code, _, err = place.run("pull", name)
    assert code == 2 and "is not the name of a model" in err and not hub.requests


@pytest.mark.parametrize("name", ["../../evil.gguf", "/etc/evil.gguf", "a/../evil.gguf", "a//b.gguf", "evil\n.gguf", "a\\b.gguf", ""])
def test_a_listing_with_a_path_that_leads_out_is_refused(place, hub, name):
    hub.files[f"{NAME}/{name}"] = SMALL
    assert "no path inside the model" in place.fails() and not hub.fetched()


def read_to_end(leader):
    """What a terminal shows, whose programs have ended. One read may return only a part."""
    shown = b""
    with contextlib.suppress(OSError):  # the end
        while part := os.read(leader, 1 << 16):
            shown += part
    return shown.decode()


def test_a_terminal_shows_a_bar_and_a_log_lines(place, hub):
    hub.faults = [hubs.cut(0.3), hubs.slow(1.2)]
    leader, follower = pty.openpty()
    process = subprocess.Popen([BINARY, "pull", NAME], stdout=subprocess.DEVNULL, stderr=follower,
                               env=place.environment(TERM="xterm", HF_HUB_DOWNLOAD_TIMEOUT="5"))
    assert process.wait(60) == 0
    os.close(follower)
    shown = read_to_end(leader)
    os.close(leader)
    assert "fetching bank-Q4_K_M.gguf, 0 of 0 MB [" in shown and "=] 100 %" not in shown.splitlines()[-1]
    place.run("rm", NAME)
    assert "fetched bank-Q4_K_M.gguf" in place.run("pull", NAME)[2]


# ---- names of other commands ------------------------------------------------------------------------------------------


def test_a_server_fetches_its_model_once_and_then_opens_no_connection(place, hub):
    hub.files = {f"{NAME}/smol-Q4_K_M.gguf": pathlib.Path(MODEL).read_bytes()}
    variables, asked = place.environment(), 0
    for _ in range(2):
        server = Server("--max-model-len", "256", "--kv-cache-memory", "64MiB", model=NAME, env=variables, served=None)
        try:
            server.wait_until_ready()
            assert server.http.get("/v1/models").json()["data"][0]["id"] == NAME
        finally:
            server.stop()
        assert len(hub.fetched()) == 1
        asked = asked or len(hub.requests)  # two, or more if a slow machine let one be tried again
        assert len(hub.requests) == asked >= 2
    assert place.run("tokenize", "--model", NAME, "Water")[0] == 0 and len(hub.requests) == asked


def test_a_path_wins_over_a_name_and_a_wrong_path_is_not_fetched(place, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "river").mkdir()
    assert "cannot find the model river/bank-GGUF" in place.run("inspect", NAME)[2] and not hub.requests
    (tmp_path / NAME).write_bytes(b"this is no model")
    assert "not a GGUF file" in place.run("inspect", NAME)[2] and not hub.requests
    assert place.pull().read_bytes() == SMALL  # pull takes names only


def test_offline_fetches_nothing(place, hub):
    for flags, variables in ((["--offline"], {}), ([], {"HF_HUB_OFFLINE": "1"}), ([], {"PENSTOCK_OFFLINE": "true"})):
        code, _, err = place.run("inspect", NAME, *flags, **variables)
        assert code == 1 and "forbids to fetch it" in err and not hub.requests


# ---- list and rm ------------------------------------------------------------------------------------------------------


def test_list_shows_and_rm_deletes(place, hub, tmp_path):
    code, out, err = place.run("list")
    assert (code, out) == (0, "") and "No models in " in err
    place.pull()
    place.pull(f"{NAME}:Q8_0")
    hub.files |= {f"river/folder/{name}": data for name, data in FOLDER.items()}
    place.pull("river/folder")
    lines = place.run("list")[1].splitlines()
    assert [line.split()[-1] for line in lines] == [f"{NAME}/bank-Q4_K_M.gguf", f"{NAME}/bank-Q8_0.gguf", "river/folder"]
    assert [line.split()[0] for line in lines] == ["0.3", "0.9", "1.2"]
    assert place.run("rm", f"{NAME}:q8_0")[1] == f"{NAME}:q8_0: 0.9 MB deleted\n"
    assert place.blobs() == [hubs.sha256(SMALL)]
    assert place.run("rm", f"{NAME}:q8_0")[0] == 1
    assert place.run("rm", f"{NAME}/bank-Q4_K_M.gguf")[0] == 0 and not place.repo().exists()
    assert place.run("rm", "river/folder")[0] == 0 and place.run("list")[1] == ""
    assert "is not in" in place.run("rm", "river/folder")[2]
    assert not any(path.is_file() for path in place.home.rglob("*"))


def test_rm_keeps_a_blob_that_another_file_needs(place, hub):
    hub.files[f"{NAME}/copy-Q5_0.gguf"] = SMALL
    place.pull()
    other = place.pull(f"{NAME}:Q5_0")
    assert "0.0 MB deleted" in place.run("rm", f"{NAME}:Q4_K_M")[1]
    assert other.read_bytes() == SMALL


def test_models_dir_replaces_the_cache(place, hub, tmp_path):
    folder = tmp_path / "models"
    code, out, _ = place.run("pull", NAME, "--models-dir", str(folder))
    assert code == 0 and out.startswith(str(folder)) and not place.home.exists()
    assert NAME in place.run("list", PENSTOCK_MODELS_DIR=str(folder))[1]
    assert place.run("rm", NAME, "--models-dir", str(folder))[0] == 0
