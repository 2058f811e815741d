"""A real proxy, an upstream behind it, and a home for each test.

ATI_BINARY names the binary; without it, target/debug/ati of this repository is used.
"""

from __future__ import annotations

import http.server
import json
import os
import pathlib
import subprocess
import threading
import time
from typing import Any, Dict, Iterator, List, Optional
from urllib.parse import parse_qs, urlsplit

import pytest

from ati import AtiOrchestrator

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]
SECRET = "17332cf135d362f79a2ed700b13e1215978be1d6ae6e133d25b6b3f21fa10299"
SANDBOX_SECRET = "706c616e7465642d7369676e696e67"
API_KEY = "planted-api-key-0123456789"


def binary() -> str:
    return os.environ.get("ATI_BINARY") or str(REPOSITORY / "target/debug/ati")


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with what it was sent, or redirects to where the query says."""

    protocol_version = "HTTP/1.1"
    # Head and body are two writes; together they would wait for each other.
    disable_nagle_algorithm = True

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        status = 200
        if "/status/" in self.path:
            status = int(self.path.split("/status/")[1][:3])
        target = parse_qs(urlsplit(self.path).query).get("to") if "/redirect" in self.path else None
        seen = {"path": self.path, "method": self.command, "body": body.decode(), "key": self.headers.get("authorization"), "signature": self.headers.get("x-sandbox-signature")}
        data = json.dumps(seen).encode()
        self.send_response(307 if target else status)
        if target:
            self.send_header("location", target[0])
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="session")
def upstream() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


MANIFEST = """
[provider]
name = "shop"
base_url = "{upstream}"
auth_type = "bearer"
auth_key_name = "shop_key"

[[tools]]
name = "shop:find"
description = "Find things"
endpoint = "/find"
[tools.input_schema]
type = "object"
required = ["q"]
[tools.input_schema.properties]
q = {{type = "string", description = "Words"}}
limit = {{type = "integer"}}

[[tools]]
name = "shop:buy"
endpoint = "/buy"
method = "POST"

[[tools]]
name = "shop:broken"
endpoint = "/status/500"
"""

ROUTE = """
[provider]
name = "route"
handler = "passthrough"
base_url = "{upstream}"
path_prefix = "/route"
auth_type = "bearer"
auth_key_name = "shop_key"
"""

SKILL = """---
name: {name}
description: {description}
---
# {name}

Use `ati run shop:find`.
"""


class Proxy:
    def __init__(self, home: pathlib.Path, upstream: str) -> None:
        self.home = home
        for name, text in {"shop": MANIFEST, "route": ROUTE}.items():
            self.write(f"manifests/{name}.toml", text.format(upstream=upstream))
        self.write("credentials", json.dumps({"shop_key": API_KEY, "sandbox_signing_shared_secret": SANDBOX_SECRET}))
        for name in ("shopping", "other"):
            self.skill(name, f"How to do {name}")
        self.process: Optional[subprocess.Popen[bytes]] = None
        self.url = ""

    def write(self, name: str, text: str) -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o600)

    def skill(self, name: str, description: str) -> None:
        self.write(f"skills/{name}/SKILL.md", SKILL.format(name=name, description=description))
        self.write(f"skills/{name}/scripts/go.sh", "#!/bin/sh\necho go\n")

    def env(self, **more: str) -> Dict[str, str]:
        base = {"PATH": os.environ["PATH"], "HOME": str(self.home), "ATI_DIR": str(self.home), "ATI_KEY_FILE": "/nonexistent"}
        return {**base, **more}

    def start(self, *args: str, **env: str) -> Proxy:
        ready = self.home / "ready"
        line = [binary(), "proxy", "--port", "0", "--admin", "127.0.0.1:0", "--enable-passthrough"]
        variables = {"ATI_JWT_SECRET": SECRET, "ATI_SKILL_REGISTRY": f"file://{self.home}/skills", **env}
        with open(self.home / "log", "wb") as log:
            self.process = subprocess.Popen(
                [*line, "--ready-file", str(ready), *args], env=self.env(**variables), stderr=log
            )
        deadline = time.monotonic() + 60
        while not ready.exists():
            assert self.process.poll() is None, (self.home / "log").read_text()
            assert time.monotonic() < deadline, "the proxy never got ready"
            time.sleep(0.02)
        self.url = f"http://{json.loads(ready.read_text())['edge']}"
        return self

    def run(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([binary(), *args], env=self.env(**env), capture_output=True, text=True, timeout=60)

    def stop(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="session")
def proxy(upstream: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A proxy that checks tokens, and only logs signatures."""
    proxy = Proxy(tmp_path_factory.mktemp("proxy"), upstream).start()
    yield proxy
    proxy.stop()


@pytest.fixture(scope="session")
def enforcing(upstream: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A proxy that takes signed requests only."""
    home = tmp_path_factory.mktemp("enforcing")
    proxy = Proxy(home, upstream).start("--sig-verify-mode", "enforce")
    yield proxy
    proxy.stop()


@pytest.fixture
def orch(proxy: Proxy) -> AtiOrchestrator:
    return AtiOrchestrator(proxy_url=proxy.url + "/", secret=SECRET)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    names: List[str] = [name for name in os.environ if name.startswith("ATI_") and name != "ATI_BINARY"]
    for name in names:
        monkeypatch.delenv(name)


@pytest.fixture
def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
