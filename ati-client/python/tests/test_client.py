"""Calls from inside of a sandbox: AtiClient, and the signature with httpx and requests."""

import asyncio
import concurrent.futures
import http.server
import json
import subprocess
import threading
from urllib.parse import urlencode

import httpx
import pytest
import requests

import ati
from ati import AsyncAtiClient, AtiClient, AtiOrchestrator, SandboxAdapter, SandboxAuth, sign_request
from conftest import API_KEY, SANDBOX_SECRET, SECRET, binary


@pytest.fixture
def sandbox(orch, monkeypatch):
    """A client in a provisioned sandbox."""
    for name, value in orch.provision_sandbox(agent_id="a", tools=["shop:*"]).items():
        monkeypatch.setenv(name, value)
    return AtiClient()


def test_call_returns_the_result(sandbox):
    found = sandbox.call("shop:find", q="red hat", limit=3)
    assert found["path"] == "/find?limit=3&q=red%20hat" or found["path"] == "/find?q=red%20hat&limit=3"
    assert API_KEY not in json.dumps(found)
    assert sandbox.call("shop_buy", tool="a", self=1)["body"] in ('{"tool":"a","self":1}', '{"self":1,"tool":"a"}')
    assert {tool["name"] for tool in sandbox.tools()} == {"shop:find", "shop:buy", "shop:broken"}
    assert sandbox.tools(search="find")[0]["name"] == "shop:find"
    assert sandbox.tool("shop:find")["input_schema"]["required"] == ["q"]


def test_call_for_asyncio(sandbox):
    async def both():
        client = AsyncAtiClient()
        calls = [client.call("shop:find", q=str(n)) for n in range(20)]
        return await asyncio.gather(*calls, sandbox.acall("shop:find", q="x"))

    found = asyncio.run(both())
    assert [one["path"] for one in found[:20]] == [f"/find?q={n}" for n in range(20)]


def test_client_is_shared_by_threads(sandbox):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: sandbox.call("shop:find", q=str(n))["path"], range(100)))
    assert found == [f"/find?q={n}" for n in range(100)]


def test_failures_have_types(sandbox, orch):
    for tool, args, error, status in [
        ("shop:none", {}, ati.NotFound, 404),
        ("shop:find", {}, ati.InvalidArguments, 422),
        ("shop:find", {"q": "x", "limit": "many"}, ati.InvalidArguments, 422),
        ("shop:broken", {}, ati.UpstreamError, 502),
    ]:
        with pytest.raises(error) as raised:
            sandbox.call(tool, **args)
        assert raised.value.status == status
        assert tool in str(raised.value)
    env = orch.provision_sandbox(agent_id="b", tools=["shop:find"], rate={"tool:shop:*": "1/hour"})
    limited = AtiClient(env["ATI_PROXY_URL"], env["ATI_SESSION_TOKEN"])
    limited.call("shop:find", q="x")
    with pytest.raises(ati.RateLimited) as raised:
        limited.call("shop:find", q="x")
    assert raised.value.retry_after > 0
    with pytest.raises(ati.AccessDenied, match="not in your scopes"):
        limited.call("shop:buy")
    with pytest.raises(ati.Unauthorized):
        AtiClient(env["ATI_PROXY_URL"], "not.a.token").call("shop:find", q="x")


def test_token_file_is_read_for_each_call(orch, tmp_path, monkeypatch):
    file = tmp_path / "token"
    monkeypatch.setenv("ATI_SESSION_TOKEN_FILE", str(file))
    client = AtiClient(orch.proxy_url)
    for tools, works in ((["shop:find"], True), (["shop:buy"], False), (["shop:*"], True)):
        file.write_text(orch.provision_sandbox(agent_id="a", tools=tools)["ATI_SESSION_TOKEN"] + "\n")
        if works:
            client.call("shop:find", q="x")
        else:
            with pytest.raises(ati.AccessDenied):
                client.call("shop:find", q="x")


def test_sandbox_without_variables_says_what_is_missing():
    with pytest.raises(ati.ProvisionError, match="ATI_PROXY_URL"):
        AtiClient()
    with pytest.raises(ati.SigningError, match="ATI_SANDBOX_SECRET"):
        sign_request("GET", "/x")


def test_signature_is_that_of_ati_sign():
    env = {"ATI_SANDBOX_SECRET": SANDBOX_SECRET, "PATH": "/bin"}
    for url in ("/tools?x=y", "https://edge.example.com/a/b%20c", "http://h", "//x/%2F"):
        made = subprocess.run([binary(), "-J", "sign", "get", url], env=env, capture_output=True, text=True)
        made = json.loads(made.stdout)
        ours = sign_request("get", url, secret=SANDBOX_SECRET, timestamp=made["timestamp"])
        assert ours == {made["header"]: made["value"]}


@pytest.mark.parametrize("url", ["x", "/a b", "/ü", "http://h/a b"])
def test_path_that_would_be_changed_is_not_signed(url):
    with pytest.raises(ati.SigningError):
        sign_request("GET", url, secret="x")


def test_secret_that_is_no_hex_is_taken_as_text():
    assert sign_request("GET", "/", secret="secr", timestamp=1) == sign_request("GET", "/", secret="73656372", timestamp=1)
    assert sign_request("GET", "/", secret=" secr\n", timestamp=1) == sign_request("GET", "/", secret="secr", timestamp=1)


PATHS = ["/route/a", "/route/a%20b?x=y%2Fz", "/route/a%2fb", "/route/%C3%BC", "/route/ü?q=ä", "/route//x"]


@pytest.mark.parametrize("path", PATHS)
def test_requests_adapter_signs(enforcing, monkeypatch, path):
    monkeypatch.setenv("ATI_SANDBOX_SECRET", SANDBOX_SECRET)
    with requests.Session() as session:
        assert session.get(enforcing.url + path).status_code == 403
        session.mount(enforcing.url, SandboxAdapter())
        for method in ("GET", "POST", "DELETE"):
            answer = session.request(method, enforcing.url + path, json={"a": 1} if method == "POST" else None)
            assert answer.status_code == 200, answer.text
            assert answer.json()["key"] == f"Bearer {API_KEY}" or answer.json()["key"] == "[REDACTED]"


@pytest.mark.parametrize("path", PATHS)
def test_httpx_auth_signs(enforcing, path):
    auth = SandboxAuth(SANDBOX_SECRET, proxy_url=enforcing.url)
    with httpx.Client(auth=auth) as client:
        answer = client.post(enforcing.url + path, json={"a": 1})
        assert answer.status_code == 200, answer.text

    async def get():
        async with httpx.AsyncClient(auth=auth) as client:
            return await client.get(enforcing.url + path)

    assert asyncio.run(get()).status_code == 200
    with httpx.Client(auth=SandboxAuth("wrong")) as client:
        assert client.get(enforcing.url + path).status_code == 403


def test_httpx_auth_leaves_other_origins_alone(upstream):
    with httpx.Client(auth=SandboxAuth("x", proxy_url="http://edge.example.com")) as client:
        assert "x-sandbox-signature" not in client.get(upstream).request.headers


def redirects(edge, other_host):
    """A URL at the edge that leads to the edge, one that does so twice, and one that leads out."""
    inside = "/route/landed?x=1"
    twice = "/route/redirect?" + urlencode({"to": inside})
    out = other_host.replace("127.0.0.1", "localhost") + "/out"
    return [edge + "/route/redirect?" + urlencode({"to": to}) for to in (inside, twice, out)]


def test_requests_adapter_signs_redirects_within_the_edge_only(enforcing, upstream):
    once, twice, out = redirects(enforcing.url, upstream)
    with requests.Session() as session:
        session.mount(enforcing.url + "/", SandboxAdapter(SANDBOX_SECRET))
        for url in (once, twice):
            answer = session.post(url, json={"a": 1})
            assert (answer.status_code, answer.json()["path"]) == (200, "/landed?x=1"), answer.text
        seen = session.get(out).json()
    assert (seen["path"], seen["signature"]) == ("/out", None)


@pytest.mark.parametrize("named", [True, False])
def test_httpx_auth_signs_redirects_within_the_edge_only(enforcing, upstream, named):
    once, twice, out = redirects(enforcing.url, upstream)
    auth = SandboxAuth(SANDBOX_SECRET, proxy_url=enforcing.url if named else None)
    with httpx.Client(auth=auth, follow_redirects=True) as client:
        for url in (once, twice):
            answer = client.post(url, json={"a": 1})
            assert (answer.status_code, answer.json()["path"]) == (200, "/landed?x=1"), answer.text
            assert answer.json()["body"] == '{"a":1}' or answer.json()["body"] == '{"a": 1}'
        seen = client.get(out).json()
        assert (seen["path"], seen["signature"]) == ("/out", None)

    async def get(url):
        async with httpx.AsyncClient(auth=auth, follow_redirects=True) as client:
            return (await client.get(url)).json()

    assert asyncio.run(get(twice))["path"] == "/landed?x=1"
    assert asyncio.run(get(out))["signature"] is None


def test_httpx_auth_leaves_other_refusals_alone(enforcing):
    url = enforcing.url + "/route/redirect?" + urlencode({"to": "/route/status/403"})
    with httpx.Client(auth=SandboxAuth(SANDBOX_SECRET), follow_redirects=True) as client:
        answer = client.get(url)
    assert (answer.status_code, answer.json()["path"]) == (403, "/status/403")


@pytest.mark.parametrize("token", ["planted-token\nX-Other: 1", "planted-tökén", "planted token", 5])
def test_token_that_cannot_be_sent_is_not_quoted(proxy, token, tmp_path, monkeypatch):
    with pytest.raises(ati.TokenMalformed) as raised:
        AtiClient(proxy.url, token).tools()
    assert "planted" not in str(raised.value) and raised.value.__cause__ is None
    orch = AtiOrchestrator(proxy_url=proxy.url, secret=SECRET)
    with pytest.raises(ati.TokenMalformed):
        orch.build_skill_listing(token=token)
    file = tmp_path / "token"
    file.write_text(f"{token}\nsecond line\n", encoding="utf-8")
    monkeypatch.setenv("ATI_SESSION_TOKEN_FILE", str(file))
    with pytest.raises(ati.TokenMalformed):
        AtiClient(proxy.url).tools()


def test_token_with_a_newline_at_its_end_works(orch):
    env = orch.provision_sandbox(agent_id="a", tools=["shop:*"])
    client = AtiClient(env["ATI_PROXY_URL"], env["ATI_SESSION_TOKEN"] + "\n")
    assert client.call("shop:find", q="x")["path"] == "/find?q=x"


def test_token_file_that_is_of_no_use_is_named(proxy, tmp_path, monkeypatch):
    monkeypatch.setenv("ATI_SESSION_TOKEN_FILE", "/nonexistent/token")
    with pytest.raises(ati.Unauthorized, match="/nonexistent/token, which isn't there"):
        AtiClient(proxy.url).tools()
    file = tmp_path / "token"
    file.write_bytes(b"\xff\xfeplanted")
    for path in (file, tmp_path):
        monkeypatch.setenv("ATI_SESSION_TOKEN_FILE", str(path))
        with pytest.raises(ati.TokenError, match=str(path)) as raised:
            AtiClient(proxy.url).tools()
        assert "planted" not in str(raised.value)


@pytest.fixture
def stand_in():
    """A server that answers every request with `Answer.body`, and keeps the last Authorization."""

    class Answer(http.server.BaseHTTPRequestHandler):
        body, kind, seen = b"", "application/json", None

        def answer(self):
            self.rfile.read(int(self.headers.get("content-length") or 0))
            Answer.seen = self.headers.get("authorization")
            self.send_response(200)
            self.send_header("content-type", Answer.kind)
            self.send_header("content-length", str(len(Answer.body)))
            self.end_headers()
            self.wfile.write(Answer.body)

        do_GET = do_POST = answer

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Answer.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield Answer
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("error", ["boom", {"code": "boom"}])
def test_error_of_a_200_answer_is_raised(stand_in, error):
    stand_in.body = json.dumps({"result": None, "error": error}).encode()
    with pytest.raises(ati.ProxyError, match="boom") as raised:
        AtiClient(stand_in.url, "token").call("x")
    assert raised.value.status == 200
    stand_in.body = b'{"result": null, "error": null}'
    assert AtiClient(stand_in.url, "token").call("x") is None


@pytest.mark.parametrize("body, kind", [(b"<html>", "text/html"), (b'["a"]', "application/json"), (b"{bad", "application/json")])
def test_answers_of_another_server_are_no_results(stand_in, body, kind):
    stand_in.body, stand_in.kind = body, kind
    client = AtiClient(stand_in.url, "token")
    for ask in (client.tools, lambda: client.tool("x"), lambda: client.call("x")):
        with pytest.raises(ati.ProxyError, match="not an ATI proxy"):
            ask()
    orch = AtiOrchestrator(proxy_url=stand_in.url, secret=SECRET)
    stand_in.body, stand_in.kind = b'{"skills": ["a"]}', "application/json"
    with pytest.raises(ati.ProvisionError, match="not that of an ATI proxy"):
        orch.build_skill_listing(token="x")
    stand_in.body = b'["a"]'
    with pytest.raises(ati.ProvisionError, match="not that of an ATI proxy"):
        orch.fetch_skills(token=None)


def test_virtual_key_is_sent_as_one(stand_in):
    stand_in.body = b"[]"
    for token, sent in (("ati-key_planted", "Ati-Key ati-key_planted"), ("planted", "Bearer planted")):
        AtiClient(stand_in.url, token).tools()
        assert stand_in.seen == sent


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}])
def test_arguments_that_are_no_json_are_not_sent(stand_in, value):
    with pytest.raises(ati.InvalidArguments, match="JSON"):
        AtiClient(stand_in.url, "token").call("x", q=value)
    assert stand_in.seen is None


def test_proxy_variables_are_not_heeded(stand_in, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    stand_in.body = b"[]"
    assert AtiClient(stand_in.url, "token").tools() == []


def test_async_client_closes_its_connections(sandbox):
    async def use():
        async with AsyncAtiClient() as client:
            await asyncio.gather(*(client.call("shop:find", q=str(n)) for n in range(8)))
            opened = list(client._client._http._open)
        return opened

    opened = asyncio.run(use())
    assert opened and all(connection.sock is None for connection in opened)


def test_signing_secret_file_is_read_for_each_request(enforcing, tmp_path, monkeypatch):
    file = tmp_path / "secret"
    monkeypatch.setenv("ATI_SANDBOX_SECRET_FILE", str(file))
    with requests.Session() as session:
        session.mount(enforcing.url, SandboxAdapter())
        with pytest.raises(ati.SigningError):
            session.get(enforcing.url + "/route/x")
        for secret, status in (("wrong", 403), (SANDBOX_SECRET, 200)):
            file.write_text(secret + "\n")
            assert session.get(enforcing.url + "/route/x").status_code == status


def test_package_needs_neither_httpx_nor_requests():
    script = "import sys; sys.modules.update(httpx=None, requests=None); import ati; from ati import *; AtiClient('http://h')"
    import sys

    subprocess.run([sys.executable, "-c", script], check=True)
    assert SECRET
