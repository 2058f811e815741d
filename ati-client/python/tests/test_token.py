"""Tokens: issued here and verified by ati, and the other way round."""

import json
import subprocess
import time

import jwt
import pytest

import ati
from ati import inspect_token, issue_token, validate_token
from conftest import SECRET, binary


def test_token_has_the_documented_claims():
    token = issue_token(secret=SECRET, sub="agent-7", scope="tool:web_search tool:github:*", rate={"tool:github:*": "10/hour"}, customer_id="cust_alpha", job_id="j", sandbox_id="s")
    assert jwt.get_unverified_header(token) == {"alg": "HS256", "typ": "JWT"}
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims.pop("exp") - claims["iat"] == 3600
    assert abs(claims.pop("iat") - time.time()) < 5
    assert len(claims.pop("jti")) == 36
    assert claims == {
        "sub": "agent-7",
        "aud": "ati-proxy",
        "iss": "ati-orchestrator",
        "scope": "tool:web_search tool:github:*",
        "ati": {"v": 1, "rate": {"tool:github:*": "10/hour"}, "customer_id": "cust_alpha"},
        "job_id": "j",
        "sandbox_id": "s",
    }


def test_claims_survive_a_round_trip():
    token = issue_token(secret=SECRET, sub="a", scope="", iss=None, jti="mine")
    claims = inspect_token(token)
    assert (claims.iss, claims.jti, claims.scopes(), claims.ati.v) == (None, "mine", [], 1)
    assert ati.TokenClaims.from_dict(claims.to_dict()) == claims
    assert 3590 < claims.expires_in() <= 3600


@pytest.mark.parametrize(
    "change, check, error",
    [
        ({"ttl_seconds": -120}, {}, ati.TokenExpired),
        ({"aud": "other"}, {}, ati.TokenNotForUs),
        ({}, {"issuer": "other"}, ati.TokenNotForUs),
        ({"secret": "ab" * 32}, {}, ati.TokenForged),
    ],
)
def test_invalid_token_has_an_error_of_its_own(change, check, error):
    token = issue_token(**{"secret": SECRET, "sub": "a", "scope": "x", **change})
    with pytest.raises(error) as raised:
        validate_token(token, secret=SECRET, **check)
    assert isinstance(raised.value, ati.TokenError)
    assert SECRET not in str(raised.value)


def test_token_within_the_leeway_is_valid():
    token = issue_token(secret=SECRET, sub="a", scope="x", ttl_seconds=-30)
    assert validate_token(token, secret=SECRET).sub == "a"
    with pytest.raises(ati.TokenExpired):
        validate_token(token, secret=SECRET, leeway=0)


@pytest.mark.parametrize("token", ["", "x", "x.y.z", "a.b.c.d"])
def test_nonsense_is_malformed(token):
    with pytest.raises(ati.TokenMalformed):
        validate_token(token, secret=SECRET)
    with pytest.raises(ati.TokenMalformed):
        inspect_token(token)


def test_unsigned_token_is_refused():
    claims = inspect_token(issue_token(secret=SECRET, sub="a", scope="*")).to_dict()
    with pytest.raises(ati.TokenError):
        validate_token(jwt.encode(claims, None, algorithm="none"), secret=SECRET)


@pytest.mark.parametrize(
    "given",
    [
        {"secret": "not hex"},
        {"secret": ""},
        {},
        {"secret": SECRET, "private_key": "x"},
        {"secret": SECRET, "sub": " "},
        {"secret": SECRET, "rate": {"tool:a": "often"}},
        {"private_key": "/nonexistent/key.pem"},
        {"private_key": "-----BEGIN PRIVATE KEY-----\nxx\n-----END PRIVATE KEY-----"},
    ],
)
def test_token_that_cannot_be_issued_says_why(given):
    with pytest.raises(ati.TokenError) as raised:
        issue_token(**{"sub": "a", "scope": "x", **given})
    assert "not hex" not in str(raised.value)


def ran(*args):
    done = subprocess.run([binary(), *args], capture_output=True, text=True, env={"HOME": "/nonexistent", "ATI_DIR": "/tmp", "PATH": "/bin"})
    return done.returncode, done.stdout, done.stderr


def test_ati_takes_our_tokens_and_we_take_its():
    token = issue_token(secret=SECRET, sub="a", scope="tool:x", rate={"tool:x": "5/min"})
    assert ran("token", "validate", token, "--secret", SECRET)[0] == 0
    assert json.loads(ran("token", "inspect", token)[1])["iss"] == "ati-orchestrator"
    code, theirs, said = ran("token", "issue", "--sub", "b", "--scope", "tool:y help", "--secret", SECRET, "--rate", "tool:y=1/day")
    assert code == 0, said
    claims = validate_token(theirs.strip(), secret=SECRET)
    assert (claims.sub, claims.scopes(), claims.ati.rate) == ("b", ["tool:y", "help"], {"tool:y": "1/day"})


def test_es256_by_text_and_by_file(tmp_path):
    made = json.loads(ran("-J", "token", "keygen")[1])
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    private.write_text(made["private_key"])
    public.write_text(made["public_key"])
    for key in (made["private_key"], private, str(private)):
        token = issue_token(private_key=key, sub="a", scope="tool:x")
        assert jwt.get_unverified_header(token)["kid"] == "ati-proxy-1"
        assert validate_token(token, public_key=made["public_key"]).sub == "a"
        code, _, said = ran("token", "validate", token, "--key", str(public))
        assert code == 0, said
    named = issue_token(private_key=private, kid="2026-11", sub="a", scope="x")
    assert jwt.get_unverified_header(named)["kid"] == "2026-11"
    # A public key must never serve as the secret of an HS256 token.
    forged = jwt.encode(inspect_token(named).to_dict(), "x" * 32, algorithm="HS256")
    with pytest.raises(ati.TokenForged):
        validate_token(forged, public_key=public)
    orch = ati.AtiOrchestrator(proxy_url="http://h", private_key=private)
    env = orch.provision_sandbox(agent_id="a", tools=["x"])
    assert orch.validate_token(env["ATI_SESSION_TOKEN"]).scopes() == ["tool:x"]
