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


@pytest.mark.parametrize(
    "change, check, text",
    [
        ({"ttl_seconds": -120}, {}, "^Token has expired$"),
        ({"aud": "other"}, {}, "^Invalid audience: "),
        ({}, {"issuer": "other"}, "^Invalid issuer: "),
        ({"secret": "ab" * 32}, {}, "^Token validation failed: "),
    ],
)
def test_texts_are_those_of_the_published_client(change, check, text):
    token = issue_token(**{"secret": SECRET, "sub": "a", "scope": "x", **change})
    with pytest.raises(ati.TokenError, match=text):
        validate_token(token, secret=SECRET, **check)


def test_token_without_iat_and_scope_is_inspected():
    claims = {"sub": "a", "aud": "ati-proxy", "exp": 9999999999}
    found = inspect_token(jwt.encode(claims, bytes.fromhex(SECRET), algorithm="HS256"))
    assert (found.iat, found.scope, found.scopes()) == (0, "", [])
    broken = jwt.encode({**claims, "exp": "abc"}, bytes.fromhex(SECRET), algorithm="HS256")
    with pytest.raises(ati.TokenMalformed, match="exp"):
        inspect_token(broken)


@pytest.mark.parametrize("customer", ["", " ", "a/b", "a@b", "a\\b", " a", "a\n", "a\u202eb", "x" * 257, "ü" * 129, 5])
def test_customer_that_no_proxy_would_take_is_refused(customer):
    with pytest.raises(ati.TokenError, match="customer_id"):
        issue_token(secret=SECRET, sub="a", scope="x", customer_id=customer)


@pytest.mark.parametrize("customer", ["cust_alpha", "acme.eu:7", "Acme Inc", "кампания", "x" * 256])
def test_customer_with_other_letters_is_taken(customer):
    token = issue_token(secret=SECRET, sub="a", scope="x", customer_id=customer)
    assert ran("token", "validate", token, "--secret", SECRET)[0] == 0
    assert inspect_token(token).ati.customer_id == customer


def test_token_that_no_proxy_would_take_is_not_issued():
    scope = " ".join(f"tool:t{n}" for n in range(3000))
    with pytest.raises(ati.TokenError, match="proxies take 16384.*name providers"):
        issue_token(secret=SECRET, sub="a", scope=scope)
    # The longest that is issued is taken.
    room = 16384 - len(issue_token(secret=SECRET, sub="a", scope=""))
    token = issue_token(secret=SECRET, sub="a", scope="x" * (room * 3 // 4 - 2))
    assert len(token) > 16370
    assert ran("token", "validate", token, "--secret", SECRET)[0] == 0


def test_broken_keys_are_token_errors(tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    def pem(key):
        private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        return private.decode(), public.decode()

    good, public = pem(ec.generate_private_key(ec.SECP256R1()))
    token = issue_token(private_key=good, sub="a", scope="x")
    broken = "-----BEGIN {0} KEY-----\nplanted\n-----END {0} KEY-----\n"
    strangers = [pem(ec.generate_private_key(ec.SECP384R1())), pem(rsa.generate_private_key(65537, 2048))]
    for key in [public, broken.format("PRIVATE"), *(private for private, _ in strangers)]:
        for use in (
            lambda: issue_token(private_key=key, sub="a", scope="x"),
            lambda: ati.AtiOrchestrator(proxy_url="http://h", private_key=key).provision_sandbox(agent_id="a"),
        ):
            with pytest.raises(ati.TokenError) as raised:
                use()
            assert "planted" not in str(raised.value)
    for key in [broken.format("PUBLIC"), broken.format("PRIVATE"), *(public for _, public in strangers)]:
        with pytest.raises(ati.TokenError):
            validate_token(token, public_key=key)
    with pytest.raises(ati.TokenError):
        ati.AtiOrchestrator(proxy_url="http://h", private_key=broken.format("PRIVATE")).validate_token(token)


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
        {"secret": SECRET, "rate": {"tool:a": 5}},
        {"secret": SECRET, "rate": {"tool:a": "٣/hour"}},
        {"secret": SECRET, "rate": {"tool:a": "9" * 40 + "/hour"}},
        {"secret": SECRET, "rate": {5: "1/hour"}},
        {"secret": SECRET, "rate": ["tool:a"]},
        {"secret": SECRET, "ttl_seconds": "60"},
        {"secret": SECRET, "ttl_seconds": float("inf")},
        {"secret": SECRET, "ttl_seconds": 2**63},
        {"secret": SECRET, "sub": None},
        {"secret": SECRET, "job_id": 5},
        {"secret": 5},
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
