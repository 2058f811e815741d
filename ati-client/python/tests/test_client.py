"""Calls from inside of a sandbox: AtiClient, and the signature with httpx and requests."""

import asyncio
import concurrent.futures
import json
import subprocess

import httpx
import pytest
import requests

import ati
from ati import AsyncAtiClient, AtiClient, SandboxAdapter, SandboxAuth, sign_request
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
