"""A hub on this machine, of the few answers that huggingface_hub asks for."""

import contextlib
import hashlib
import http.server
import json
import threading
from urllib.parse import parse_qs, unquote, urlsplit


def commit_of(name, revision):
    return hashlib.sha1(f"{name}{revision}".encode()).hexdigest()


@contextlib.contextmanager
def serving(models, proposals=(), gated=()):
    """Its address. `models` is {name: {revision: folder}}; `proposals` are (name, number, author)
    of pull requests.
    """

    class Hub(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            path = unquote(urlsplit(self.path).path).strip("/")
            if not path:
                return self.answer(b"")
            api = path.startswith("api/models/")
            name, _, rest = path.removeprefix("api/models/").partition("/")
            name, (kind, _, rest) = (
                f"{name}/{rest.split('/')[0]}",
                rest.partition("/")[2].partition("/"),
            )
            if name in gated:
                return self.answer(b"", 403, {"X-Error-Code": "GatedRepo"})
            if name not in models:
                return self.answer(b"", 401, {"X-Error-Code": "RepoNotFound"})
            if api:
                return self.told(name, kind, rest)
            revision, file = self.revision(name, rest)
            if revision is None:
                return self.answer(b"", 404, {"X-Error-Code": "RevisionNotFound"})
            commit = commit_of(name, revision)
            found = models[name][revision] / file
            if not found.is_file():
                return self.answer(
                    b"", 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit}
                )
            content = found.read_bytes()
            headers = {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}
            return self.answer(content, 200, headers)

        def revision(self, name, rest):
            """What is asked for by name or commit, and the file behind it."""
            known = {one: one for one in models[name]} | {
                commit_of(name, one): one for one in models[name]
            }
            asked = next((one for one in known if f"{rest}/".startswith(f"{one}/")), None)
            return known.get(asked), rest.removeprefix(f"{asked}/")

        def told(self, name, kind, rest):
            if kind == "tree":
                files = sorted(
                    path.name for path in models[name][self.revision(name, rest)[0]].iterdir()
                )
                said = [
                    {"type": "file", "path": file, "size": 1, "oid": "0" * 40} for file in files
                ]
            elif kind == "discussions":
                assert parse_qs(urlsplit(self.path).query)["type"] == ["pull_request"]
                about = {
                    "createdAt": "2023-04-01T00:00:00.000Z",
                    "status": "open",
                    "isPullRequest": True,
                }
                about |= {
                    "title": "Adding `safetensors` variant of this model",
                    "repo": {"name": name, "type": "model"},
                }
                own = [
                    (number, author) for proposed, number, author in proposals if proposed == name
                ]
                said = [
                    about | {"num": number, "author": {"name": author}} for number, author in own
                ]
                said = {"discussions": said, "count": len(said), "start": 0}
            else:
                said = {
                    "id": name,
                    "sha": commit_of(name, rest or "main"),
                    "siblings": [],
                    "tags": [],
                }
            return self.answer(json.dumps(said).encode(), 200, {"Content-Type": "application/json"})

        def answer(self, content, code=200, headers=None):
            self.send_response(code)
            for key, value in ((headers or {}) | {"Content-Length": str(len(content))}).items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        def log_message(self, *words):
            """Nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
