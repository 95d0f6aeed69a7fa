"""A hub on this machine, of the few answers that huggingface_hub asks for."""

import contextlib
import hashlib
import http.server
import json
import threading
from urllib.parse import unquote, urlsplit

TITLE = "Adding `safetensors` variant of this model"


def commit_of(name, revision):
    return hashlib.sha1(f"{name}{revision}".encode()).hexdigest()


def answer(path, models, proposals, gated):
    """(content, status, headers) of a path."""
    is_api = path.startswith("api/models/")
    owner, name, kind, *rest = (*path.removeprefix("api/models/").split("/", 3), "", "", "")
    name, rest = f"{owner}/{name}", rest[0]
    if not path or name in gated or name not in models:
        if not path:
            return b"", 200, {}
        code = (403, "GatedRepo") if name in gated else (401, "RepoNotFound")
        return b"", code[0], {"X-Error-Code": code[1]}
    known = {x: x for x in models[name]} | {commit_of(name, x): x for x in models[name]}
    asked = next((x for x in known if f"{rest}/".startswith(f"{x}/")), None)
    revision, file = known.get(asked), rest.removeprefix(f"{asked}/")
    if is_api:
        if kind == "tree":
            files = sorted(path.name for path in models[name][revision].iterdir())
            found = [{"type": "file", "path": x, "size": 1, "oid": "0" * 40} for x in files]
        elif kind == "discussions":
            about = {"createdAt": "2023-04-01T00:00:00.000Z", "status": "open", "title": TITLE}
            about |= {"isPullRequest": True, "repo": {"name": name, "type": "model"}}
            requests = [
                about | {"num": number, "author": {"name": author}}
                for model, number, author in proposals
                if model == name
            ]
            found = {"discussions": requests, "count": len(requests), "start": 0}
        else:
            found = {"id": name, "sha": commit_of(name, rest or "main"), "siblings": [], "tags": []}
        return json.dumps(found).encode(), 200, {"Content-Type": "application/json"}
    if revision is None:
        return b"", 404, {"X-Error-Code": "RevisionNotFound"}
    headers = {"X-Repo-Commit": commit_of(name, revision)}
    found = models[name][revision] / file
    if not found.is_file():
        return b"", 404, headers | {"X-Error-Code": "EntryNotFound"}
    content = found.read_bytes()
    return content, 200, headers | {"ETag": f'"{hashlib.sha1(content).hexdigest()}"'}


@contextlib.contextmanager
def serving(models, proposals=(), gated=()):
    """Its address.

    `models` is {name: {revision: folder}}; `proposals` are (name, number, author) of pull requests.
    """

    class Hub(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            path = unquote(urlsplit(self.path).path).strip("/")
            content, code, headers = answer(path, models, proposals, gated)
            self.send_response(code)
            for key, value in (headers | {"Content-Length": str(len(content))}).items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

        do_HEAD = do_GET

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
