"""What the scripts of this folder share: checks, an upstream, a proxy, and sandboxes."""

import http.server
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SECRET = "17332cf135d362f79a2ed700b13e1215978be1d6ae6e133d25b6b3f21fa10299"
SIGNING = "706c616e7465642d7369676e696e67"
API_KEY = "planted-api-key-0123456789"

checks = 0


def check(what, holds, detail=""):
    global checks
    checks += 1
    if not holds:
        print(f"FAIL  {what}: {detail}")
        sys.exit(1)
    print(f"ok    {what}", flush=True)


def finish(what):
    print(f"{checks} checks {what}")


class Upstream(http.server.BaseHTTPRequestHandler):
    """Answers with what it was sent; below /mcp as an MCP server with the tools of DeepWiki."""

    protocol_version = "HTTP/1.1"
    # Head and body are two writes; together they would wait for each other.
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path.startswith("/mcp"):
            return self.mcp(body)
        key = self.headers.get("authorization") or ""
        self.send(200, {"path": self.path, "marker": "seen-by-the-upstream", "has_key": API_KEY in key})

    do_GET = do_POST = do_DELETE = answer

    def mcp(self, body):
        if self.command != "POST":
            return self.send(405, None)
        message = json.loads(body)
        if "id" not in message:
            return self.send(202, None)
        method = message["method"]
        if method == "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "deepwiki", "version": "1"}}
        elif method == "tools/list":
            schema = {"type": "object", "properties": {"repoName": {"type": "string"}}, "required": ["repoName"]}
            names = {"read_wiki_structure": "The topics of a repository's wiki", "ask_question": "Ask about a repository"}
            result = {"tools": [{"name": name, "description": text, "inputSchema": schema} for name, text in names.items()]}
        elif method == "tools/call":
            text = f"seen-by-the-upstream {json.dumps(message['params']['arguments'])}"
            result = {"content": [{"type": "text", "text": text}]}
        else:
            error = {"code": -32601, "message": f"Method not found: {method}"}
            return self.send(200, {"jsonrpc": "2.0", "id": message["id"], "error": error})
        self.send(200, {"jsonrpc": "2.0", "id": message["id"], "result": result})

    def send(self, status, value):
        data = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True


def upstream():
    server = Server(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


class Edge:
    """A proxy in a folder of its own. It is killed at the end."""

    def __init__(self, ati, home):
        self.ati, self.home, self.process = ati, pathlib.Path(home), None
        (self.home / "manifests").mkdir(parents=True, exist_ok=True)
        self.write("credentials", json.dumps({"api_key": API_KEY, "sandbox_signing_shared_secret": SIGNING}))

    def write(self, name, text):
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)

    def shipped(self, url):
        """The manifests that the examples use, with this upstream in the place of their own."""
        shutil.copytree(REPOSITORY / "manifests/specs", self.home / "specs", dirs_exist_ok=True)
        places = {
            "deepwiki-mcp": ("https://mcp.deepwiki.com/mcp", f"{url}/mcp"),
            "crossref": ("https://api.crossref.org", f"{url}/crossref"),
            "arxiv": ("https://export.arxiv.org/api", f"{url}/arxiv"),
            "hackernews": ("https://hacker-news.firebaseio.com/v0", f"{url}/hackernews"),
        }
        for name, (there, here) in places.items():
            text = (REPOSITORY / f"manifests/{name}.toml").read_text()
            check(f"manifest of {name}", there in text, text)
            self.write(f"manifests/{name}.toml", text.replace(there, here))

    def env(self, **more):
        base = {"PATH": os.environ["PATH"], "HOME": str(self.home), "ATI_DIR": str(self.home), "ATI_KEY_FILE": "/nonexistent"}
        return {**base, **more}

    def start(self, *args, prefix=(), **env):
        ready = self.home / "ready"
        line = [*prefix, self.ati, "proxy", "--port", "0", "--admin", "127.0.0.1:0", "--ready-file", str(ready), *args]
        with open(self.home / "log", "wb") as log:
            self.process = subprocess.Popen(line, env=self.env(ATI_JWT_SECRET=SECRET, **env), stderr=log)
        deadline = time.monotonic() + 60
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                check("the proxy starts", False, (self.home / "log").read_text())
            time.sleep(0.02)
        self.url = f"http://{json.loads(ready.read_text())['edge']}"
        return self

    def provision(self, agent, tools, *more):
        line = [self.ati, "sandbox", "provision", "--agent", agent, "--tools", tools, "--proxy-url", self.url, "--format", "json", *more]
        made = subprocess.run(line, env=self.env(ATI_JWT_SECRET=SECRET), capture_output=True, text=True, check=True)
        return json.loads(made.stdout)

    def stop(self):
        if self.process:
            self.process.kill()
            self.process.wait()
