"""The examples of ATI's documentation about tokens and harnesses, as they are written there.

Only placeholders are replaced: URLs, secrets, ports and folders.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import textwrap

import pytest

from ati import inspect_token
from conftest import REPOSITORY, SECRET, binary

CONFIGURE_JWT = """
from ati import AtiOrchestrator, issue_token, validate_token, build_scope_string

orch = AtiOrchestrator(
    proxy_url="http://proxy:8090",
    secret="<64-char-hex ATI_JWT_SECRET>",
    default_aud="ati-proxy",
    default_iss="ati-orchestrator",
)

env = orch.provision_sandbox(
    agent_id="sandbox:abc123",
    tools=["finnhub_quote", "web_search"],
    skills=["financial-analysis"],
    extra_scopes=["help"],
    ttl_seconds=3600,
    rate={"tool:github:*": "10/hour"},
    customer_id="cust_alpha",  # optional; proxy credential cascade
)
# env["ATI_PROXY_URL"], env["ATI_SESSION_TOKEN"]
# optional env["skills"] when fetch_skill_content=True
"""

SCOPE_STRING = """
build_scope_string(tools=["web_search", "github:*"], skills=["research-*"])
"""

LOWER_LEVEL = """
token = issue_token(
    secret=hex_secret,
    sub="agent-7",
    scope="tool:finnhub:* help",
    ttl_seconds=1800,
    aud="ati-proxy",
    customer_id=None,
)
validate_token(token, secret=hex_secret, audience="ati-proxy", issuer="ati-orchestrator")
"""

HARNESS = """
from ati import AtiOrchestrator

orch = AtiOrchestrator(
    proxy_url="https://ati-proxy.example.com",
    secret="<64-char-hex-hs256-secret>",
)

env_vars = orch.provision_sandbox(
    agent_id=f"sandbox:{sandbox_id}",
    tools=["finnhub_quote", "web_search", "github:*"],
    skills=["financial-analysis"],
    extra_scopes=["help"],
    ttl_seconds=7200,
    rate={"tool:github:*": "10/hour"},
    customer_id=None,  # optional tenant for per-customer credentials
    fetch_skill_content=False,
)
# {"ATI_PROXY_URL": "...", "ATI_SESSION_TOKEN": "eyJ..."}
"""


def filled(code: str) -> str:
    return re.sub(r'"<64-char-hex[^>]*>"', json.dumps(SECRET), code)


def test_page_12_python():
    names: dict = {"hex_secret": SECRET}
    exec(filled(CONFIGURE_JWT), names)
    env = names["env"]
    assert set(env) == {"ATI_PROXY_URL", "ATI_SESSION_TOKEN"}
    assert env["ATI_PROXY_URL"] == "http://proxy:8090"
    claims = inspect_token(env["ATI_SESSION_TOKEN"])
    assert claims.sub == "sandbox:abc123"
    assert claims.scope == "tool:finnhub_quote tool:web_search skill:financial-analysis help"
    assert claims.ati.customer_id == "cust_alpha"
    assert eval(SCOPE_STRING.strip(), names) == "tool:web_search tool:github:* skill:research-*"
    exec(LOWER_LEVEL, names)
    assert inspect_token(names["token"]).exp - inspect_token(names["token"]).iat == 1800


def test_page_19_python():
    from ati import build_scope_string

    scope = build_scope_string(
        tools=["web_search", "github:*"],
        skills=["research-*"],
        extra=["help"],
    )
    assert scope == "tool:web_search tool:github:* skill:research-* help"


def test_page_22_python():
    names: dict = {"sandbox_id": "abc"}
    exec(filled(HARNESS), names)
    env = names["env_vars"]
    assert env["ATI_PROXY_URL"] == "https://ati-proxy.example.com"
    claims = inspect_token(env["ATI_SESSION_TOKEN"])
    assert (claims.sub, claims.ati.rate) == ("sandbox:abc", {"tool:github:*": "10/hour"})


def test_page_22_type_checks(tmp_path):
    pytest.importorskip("mypy")
    code = "import subprocess\nsandbox_id = 1\n" + HARNESS
    code += 'orch.build_skill_listing(token=env_vars["ATI_SESSION_TOKEN"])\n'
    code += 'subprocess.run(["true"], env=env_vars)\n'
    code += 'more = orch.provision_sandbox(agent_id="a", fetch_skill_content=True)\n'
    code += 'texts: dict[str, str] = more.pop("skills")\n'
    (tmp_path / "example.py").write_text(code)
    line = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "example.py"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


# Lines of page 12 and, at the end, of page 22.
KEYS = """
ati key set finnhub_api_key "<secret>"
ati key set github_token ghp_xxxxxxxx
ati key list
ati key remove finnhub_api_key
"""

ISSUE = """
ati token issue \\
  --sub sandbox:job-42 \\
  --scope "tool:finnhub:* tool:github:* help" \\
  --ttl 3600 \\
  --secret <hex-from-init-or-keygen>
"""

INSPECT = """
ati token inspect "$ATI_SESSION_TOKEN"
ati token validate "$ATI_SESSION_TOKEN" --secret <hex>
ati auth status
"""

START = """
export ATI_JWT_SECRET=<secret from config.toml>
export ATI_JWT_AUDIENCE=ati-proxy
ati proxy --port 8090 --ati-dir ~/.ati &
ati token issue --sub agent-1 --scope "tool:* help" --secret "$ATI_JWT_SECRET"
"""

INJECT = """
export ATI_PROXY_URL=http://127.0.0.1:8090
export ATI_SESSION_TOKEN=<jwt>
ati auth status
ati token validate "$ATI_SESSION_TOKEN"
curl -s http://127.0.0.1:8090/health
curl -s http://127.0.0.1:8090/.well-known/jwks.json   # when ES256 + public key configured
"""

LOOP = """
ati tool search "keyword"
ati tool info <tool_name>
ati run <tool_name> --key value
ati skill fetch read <skill_name>    # proxy / skillati deployments
"""


@pytest.fixture
def shell(tmp_path):
    """A shell with ati on its path, in a home of its own."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ati").symlink_to(binary())

    def run(script: str, **env: str) -> str:
        done = subprocess.run(
            ["bash", "-euc", textwrap.dedent(script)],
            env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "HOME": str(tmp_path), "ATI_KEY_FILE": "/nonexistent", **env},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_page_12_keys(shell):
    out = shell(KEYS.replace("<secret>", "sk-1234567890abcdef"))
    assert "sk-1...cdef" in out
    assert "1234567890" not in out


@pytest.mark.parametrize("algorithm", ["ES256", "HS256"])
def test_page_12_keygen(shell, algorithm, tmp_path):
    made = shell(f"ati token keygen --algorithm {algorithm}")
    if algorithm == "HS256":
        assert re.fullmatch(r"[0-9a-f]{64}\n", made)
        env = {"ATI_JWT_SECRET": made.strip()}
    else:
        private, public = re.findall(r"-----BEGIN.*?-----END [A-Z ]+-----\n", made, re.S)
        (tmp_path / "private.pem").write_text(private)
        (tmp_path / "public.pem").write_text(public)
        env = {"ATI_JWT_PRIVATE_KEY": f"{tmp_path}/private.pem", "ATI_JWT_PUBLIC_KEY": f"{tmp_path}/public.pem"}
    token = shell('ati token issue --sub agent-7 --scope "tool:web_search tool:github:* skill:research-* help" --ttl 1800', **env)
    shell('ati token validate "$T"', T=token.strip(), **env)


def test_page_12_issue_and_inspect(shell):
    token = shell(ISSUE.replace("<hex-from-init-or-keygen>", SECRET)).strip()
    claims = inspect_token(token)
    assert (claims.sub, claims.exp - claims.iat) == ("sandbox:job-42", 3600)
    out = shell(INSPECT.replace("<hex>", SECRET), ATI_SESSION_TOKEN=token)
    assert '"sub": "sandbox:job-42"' in out


@pytest.mark.parametrize("flags", ["--proxy", "--proxy --es256"])
def test_page_12_from_init_to_a_checked_token(shell, flags, tmp_path, free_port):
    shell(f"ati init {flags}")
    config = (tmp_path / ".ati/config.toml").read_text()
    if "--es256" in flags:
        keys = {"ATI_JWT_PRIVATE_KEY": f"{tmp_path}/.ati/jwt-private.pem", "ATI_JWT_PUBLIC_KEY": f"{tmp_path}/.ati/jwt-public.pem"}
        start = START.replace("export ATI_JWT_SECRET=<secret from config.toml>\n", "").replace('--secret "$ATI_JWT_SECRET"', "--key ~/.ati/jwt-private.pem")
    else:
        keys = {}
        start = START.replace("<secret from config.toml>", re.search(r'secret = "([0-9a-f]+)"', config).group(1))
    port = str(free_port)
    script = f"""
        {start.replace("8090 --ati-dir ~/.ati &", "8090 --ati-dir ~/.ati 2>/dev/null >/dev/null & trap 'kill %1' EXIT").replace('ati token issue', 'TOKEN=$(ati token issue').rstrip()})
        curl -s --retry 20 --retry-connrefused http://127.0.0.1:8090/health >/dev/null
        {INJECT.replace("<jwt>", "$TOKEN")}
    """.replace("8090", port)
    script = "\n".join(line.strip() for line in script.splitlines())
    out = shell(script, **keys)
    assert '"auth":"jwt"' in out
    assert ('"kid"' in out) == bool(keys)


def test_page_22_agent_loop(shell, orch, proxy):
    env = orch.provision_sandbox(agent_id="a", tools=["shop:*"], skills=["shopping"])
    loop = LOOP.replace("keyword", "find").replace("<skill_name>", "shopping")
    loop = loop.replace("<tool_name> --key value", "shop:find --q value").replace("<tool_name>", "shop:find")
    out = shell(loop, **env)
    assert '"tool": "shop:find"' in out and "/find?q=value" in out and "ati run shop:find" in out
    verbose = subprocess.run([binary(), "--verbose", *shlex.split("run shop:find --q x")], env=proxy.env(**env), capture_output=True, text=True)
    assert "mode: proxy" in verbose.stderr


def test_page_22_local_mode_uses_the_repository(shell):
    out = shell("ati tool list --provider hackernews", ATI_DIR=str(REPOSITORY))
    assert "hackernews_top_stories" in out
