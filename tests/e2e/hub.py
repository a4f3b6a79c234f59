"""A model hub on loopback: the listing, the files and the faults that a test chooses."""
import hashlib
import http.server
import json
import ssl
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def is_large(path):
    return path.endswith((".gguf", ".safetensors"))


def hash_of(path, data):
    return sha256(data) if is_large(path) else git_sha1(data)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, code, body=b"", **headers):
        self.send_response(code)
        headers.setdefault("Content_Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub, path = self.server, urllib.parse.unquote(self.path.split("?")[0])
        with hub.lock:
            hub.requests.append((self.command, self.path, dict(self.headers)))
            is_file = "/resolve/" in path and self.command == "GET"
            fault = hub.faults.pop(0) if is_file and hub.faults else None
            if not is_file and hub.listing_faults:
                fault = hub.listing_faults.pop(0)
        if fault and fault(self):
            return
        if path.startswith("/api/models/"):
            self.send_listing(path)
        elif "/resolve/" in path:
            self.send_file(path)
        elif path.startswith("/elsewhere/"):  # as another host, which hub.redirects_to names
            self.send_bytes(hub.files[path.removeprefix("/elsewhere/")])
        else:
            self.answer(404)

    def send_listing(self, path):
        repo = path.removeprefix("/api/models/").split("/revision/")[0].split("/tree/")[0]
        files = {name.removeprefix(repo + "/"): data for name, data in self.server.files.items() if name.startswith(repo + "/")}
        if not files:
            self.answer(404, b'{"error":"Repository not found"}')
            return
        entries = []
        for name, data in files.items():
            entry = {"rfilename": name, "size": len(data), "blobId": git_sha1(data)}
            if is_large(name):
                entry["lfs"] = {"sha256": sha256(data), "size": len(data), "pointerSize": 134}
            entries.append({**entry, **self.server.claims.get(name, {})})
        self.answer(200, json.dumps({"id": repo, "sha": COMMIT, "siblings": entries}).encode(), Content_Type="application/json")

    def send_file(self, path):
        repo, _, rest = path[1:].partition("/resolve/")
        name = rest.split("/", 1)[1]
        data = self.server.files.get(f"{repo}/{name}")
        if data is None:
            self.answer(404)
            return
        headers = {"X_Repo_Commit": COMMIT, "ETag": f'"{hash_of(name, data)}"', **self.server.headers}
        if is_large(name):
            headers |= {"X_Linked_Etag": f'"{sha256(data)}"', "X_Linked_Size": str(len(data)), **self.server.headers}
        if self.server.redirects_to:
            self.answer(302, Location=f"{self.server.redirects_to}/elsewhere/{urllib.parse.quote(repo + '/' + name)}", **headers)
        else:
            self.send_bytes(data, **headers)

    def send_bytes(self, data, end=None, then=None, **headers):
        """Sends the range that was asked for, up to `end`; then calls `then`."""
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        for name, value in {"Content_Length": str(len(data) - start), "Accept_Ranges": "bytes", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[start:end])
        if then:
            self.wfile.flush()
            then()
            self.close_connection = True


class Hub(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, certificate=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.server_address[1]}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.files = {}  # org/repo/path -> bytes
        self.claims = {}  # path -> members of its entry in the listing
        self.headers = {}  # of answers with files
        self.faults = []  # of the next answers with files, and with listings
        self.listing_faults = []
        self.redirects_to = None
        self.requests = []
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def handle_error(self, *_):  # a client that leaves is no error here
        pass

    def fetched(self):
        """The paths of the files that were asked for."""
        return [urllib.parse.unquote(path.split("/resolve/")[1].split("/", 1)[1])
                for method, path, _ in self.requests if method == "GET" and "/resolve/" in path]


# ---- faults: each answers a request, and returns True ------------------------------------------------------------------


def code(number, body=b"", **headers):
    def fault(handler):
        handler.answer(number, body, **headers)
        return True
    return fault


def data_of(handler):
    repo, _, rest = urllib.parse.unquote(handler.path)[1:].partition("/resolve/")
    return handler.server.files[f"{repo}/{rest.split('/', 1)[1]}"]


def cut(share):
    """Closes the connection after this share of the file."""
    def fault(handler):
        data = data_of(handler)
        handler.send_bytes(data, end=int(len(data) * share), then=lambda: None)
        return True
    return fault


def hang(share, seconds=30):
    """Sends this share of the file, and then nothing."""
    def fault(handler):
        data = data_of(handler)
        handler.send_bytes(data, end=int(len(data) * share), then=lambda: time.sleep(seconds))
        return True
    return fault


def replaced(data):
    def fault(handler):
        handler.send_bytes(data)
        return True
    return fault


def without_range(handler):
    """A server that ignores ranges."""
    handler.answer(200, data_of(handler))
    return True


def slow(seconds):
    def fault(handler):
        time.sleep(seconds)
        return False
    return fault
