"""Session tokens: JWTs with the claims that ati reads."""

from __future__ import annotations

import os
import re
import time
import unicodedata
import uuid
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Union

import jwt

from .errors import TokenError, TokenExpired, TokenForged, TokenMalformed, TokenNotForUs

DEFAULT_AUDIENCE = "ati-proxy"
DEFAULT_ISSUER = "ati-orchestrator"
#: The name of an ES256 key, where a proxy has only one.
DEFAULT_KID = "ati-proxy-1"
#: Seconds that clocks may differ by.
LEEWAY = 60

#: A PEM text, or the path of a file that holds one.
Pem = Union[str, bytes, "os.PathLike[str]"]

#: Bytes of the longest token that proxies take.
LONGEST_TOKEN = 16 << 10
#: Seconds: a hundred years. A longer time is a typing error.
LONGEST_TTL = 36_500 * 86_400

_HIGHEST_RATE = (1 << 32) - 1
# Marks that turn the direction of text around or take no room: two ids that look the same would be
# two customers.
_UNPRINTED = re.compile("[\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_RATE = re.compile(r"\s*([0-9]+)\s*/\s*(s|sec|second|m|min|minute|h|hr|hour|d|day)\s*")


@dataclass
class AtiNamespace:
    """The claims below `ati`."""

    v: int = 1
    rate: Dict[str, str] = field(default_factory=dict)
    customer_id: Optional[str] = None

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> AtiNamespace:
        rate = d.get("rate")
        return cls(
            v=d.get("v", 1),
            rate=dict(rate) if isinstance(rate, dict) else {},
            customer_id=d.get("customer_id"),
        )

    def to_dict(self) -> Dict[str, Any]:
        claims: Dict[str, Any] = {"v": self.v}
        if self.rate:
            claims["rate"] = dict(self.rate)
        if self.customer_id is not None:
            claims["customer_id"] = self.customer_id
        return claims


@dataclass
class TokenClaims:
    """What a token says."""

    sub: str
    aud: str
    iat: int
    exp: int
    scope: str
    iss: Optional[str] = None
    jti: Optional[str] = None
    ati: Optional[AtiNamespace] = None
    job_id: Optional[str] = None
    sandbox_id: Optional[str] = None

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> TokenClaims:
        """Claims that lack `iat` or `scope` have 0 and nothing instead."""
        missing = [name for name in ("sub", "aud", "exp") if name not in d]
        if missing:
            raise TokenMalformed(f"the token has no {missing[0]}")
        ati = d.get("ati")
        return cls(
            sub=d["sub"],
            aud=d["aud"],
            iat=_time(d, "iat"),
            exp=_time(d, "exp"),
            scope=d.get("scope", ""),
            iss=d.get("iss"),
            jti=d.get("jti"),
            ati=AtiNamespace.from_dict(ati) if isinstance(ati, dict) else None,
            job_id=d.get("job_id"),
            sandbox_id=d.get("sandbox_id"),
        )

    def to_dict(self) -> Dict[str, Any]:
        """The claims as they are signed: without those that aren't set."""
        claims: Dict[str, Any] = {
            "sub": self.sub,
            "aud": self.aud,
            "iat": self.iat,
            "exp": self.exp,
            "scope": self.scope,
        }
        for name in ("iss", "jti", "job_id", "sandbox_id"):
            if getattr(self, name) is not None:
                claims[name] = getattr(self, name)
        if self.ati is not None:
            claims["ati"] = self.ati.to_dict()
        return claims

    def scopes(self) -> List[str]:
        return self.scope.split()

    def expires_in(self) -> float:
        """Seconds until it expires; negative afterwards."""
        return self.exp - time.time()


def issue_token(
    *,
    secret: Optional[str] = None,
    sub: str,
    scope: str,
    ttl_seconds: int = 3600,
    aud: str = DEFAULT_AUDIENCE,
    iss: Optional[str] = DEFAULT_ISSUER,
    jti: Optional[str] = None,
    rate: Optional[Mapping[str, str]] = None,
    customer_id: Optional[str] = None,
    job_id: Optional[str] = None,
    sandbox_id: Optional[str] = None,
    private_key: Optional[Pem] = None,
    kid: Optional[str] = None,
) -> str:
    """A signed token: HS256 with `secret` (hex), or ES256 with `private_key` (PEM text or path)."""
    texts = {"sub": sub, "scope": scope, "aud": aud, "iss": iss, "jti": jti, "kid": kid}
    texts.update(customer_id=customer_id, job_id=job_id, sandbox_id=sandbox_id)
    for name, text in texts.items():
        is_needed = name in ("sub", "scope", "aud")
        if not isinstance(text, str) and (is_needed or text is not None):
            raise TokenError(f"{name} must be a text")
    if not sub.strip():
        raise TokenError("sub is empty: who is the token for?")
    if customer_id is not None:
        _check_customer(customer_id)
    now = int(time.time())
    claims = TokenClaims(
        sub=sub,
        aud=aud,
        iat=now,
        exp=now + _seconds(ttl_seconds),
        scope=scope,
        iss=iss,
        jti=jti or str(uuid.uuid4()),
        ati=AtiNamespace(rate=_checked(rate), customer_id=customer_id),
        job_id=job_id,
        sandbox_id=sandbox_id,
    )
    key, algorithm = _key(secret, private_key, is_private=True)
    headers = {"kid": kid or DEFAULT_KID} if algorithm == "ES256" else None
    try:
        token = jwt.encode(claims.to_dict(), key, algorithm=algorithm, headers=headers)
    except (TypeError, ValueError, jwt.PyJWTError) as error:
        raise TokenError(f"the token can't be signed: {error}") from error
    if len(token) > LONGEST_TOKEN:
        raise TokenError(
            f"the token would have {len(token)} bytes, and proxies take {LONGEST_TOKEN}: name "
            "providers instead of single tools, like github:*"
        )
    return token


def validate_token(
    token: str,
    *,
    secret: Optional[str] = None,
    audience: str = DEFAULT_AUDIENCE,
    issuer: Optional[str] = None,
    leeway: int = LEEWAY,
    public_key: Optional[Pem] = None,
) -> TokenClaims:
    """The claims of a token whose signature, time, audience and issuer are right."""
    key, algorithm = _key(secret, public_key, is_private=False)
    try:
        claims = jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=audience,
            issuer=issuer,
            leeway=leeway,
            options={"require": ["sub", "aud", "exp"]},
        )
    except jwt.ExpiredSignatureError as error:
        raise TokenExpired("Token has expired") from error
    except jwt.InvalidAudienceError as error:
        raise TokenNotForUs(f"Invalid audience: {error}") from error
    except jwt.InvalidIssuerError as error:
        raise TokenNotForUs(f"Invalid issuer: {error}") from error
    except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError) as error:
        raise TokenForged(f"Token validation failed: {error}") from error
    except jwt.PyJWTError as error:
        raise TokenMalformed(f"Token validation failed: {error}") from error
    return TokenClaims.from_dict(claims)


def inspect_token(token: str) -> TokenClaims:
    """The claims without any check, for debugging."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except jwt.PyJWTError as error:
        raise TokenMalformed(f"Failed to decode token: {error}") from error
    return TokenClaims.from_dict(claims)


def _checked(rate: Optional[Mapping[str, str]]) -> Dict[str, str]:
    if rate is None:
        return {}
    if not isinstance(rate, Mapping):
        raise TokenError("rate must be a dict, like {'tool:github:*': '10/hour'}")
    for pattern, spec in rate.items():
        # The proxy would refuse the whole token.
        if not isinstance(pattern, str) or not pattern:
            raise TokenError(f"rate of {pattern!r}: like 'tool:github:*'")
        found = _RATE.fullmatch(spec) if isinstance(spec, str) else None
        if found is None or int(found.group(1)) > _HIGHEST_RATE:
            raise TokenError(f"rate of {pattern!r}: {spec!r} is no rate; like 10/hour")
    return dict(rate)


def _check_customer(customer: str) -> None:
    """As the proxy checks it: it would refuse the whole token."""
    unprinted = any(unicodedata.category(c) == "Cc" or _UNPRINTED.match(c) for c in customer)
    faults = {
        "is empty": not customer,
        "is longer than 256 bytes": len(customer.encode("utf-8", "replace")) > 256,
        "has an '@', a '/' or a '\\' in it": any(c in "@/\\" for c in customer),
        "has a character in it that isn't printed": unprinted,
        "has a blank at an end": customer.strip() != customer,
    }
    for fault, is_so in faults.items():
        if is_so:
            raise TokenError(f"customer_id {fault}")


def _seconds(ttl: Any) -> int:
    is_number = isinstance(ttl, (int, float)) and not isinstance(ttl, bool)
    # Written so that it is false for NaN, too.
    if not is_number or not -LONGEST_TTL <= ttl <= LONGEST_TTL:
        raise TokenError("ttl_seconds must be a number of seconds, at most a hundred years")
    return int(ttl)


def _time(claims: Mapping[str, Any], name: str) -> int:
    try:
        return int(claims.get(name, 0))
    except (TypeError, ValueError, OverflowError):
        raise TokenMalformed(f"the token's {name} is no time") from None


def _key(secret: Optional[str], pem: Optional[Pem], *, is_private: bool) -> "tuple[Any, str]":
    if (secret is None) == (pem is None):
        raise TokenError("one key is needed: a secret for HS256, or a PEM key for ES256")
    if pem is not None:
        return _es256_key(_pem(pem), is_private), "ES256"
    try:
        key = bytes.fromhex((secret or "").strip())
    except (AttributeError, ValueError):
        # Without the cause, which could quote the secret.
        raise TokenError("HS256 secret must be valid hex") from None
    if not key:
        raise TokenError("HS256 secret is empty")
    return key, "HS256"


def _es256_key(pem: bytes, is_private: bool) -> Any:
    """The key of a PEM text. A private key verifies, too: it has the public one in it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key: Any
    try:
        if is_private or b"PRIVATE KEY-----" in pem:
            key = serialization.load_pem_private_key(pem, None)
        else:
            key = serialization.load_pem_public_key(pem)
    except (TypeError, ValueError, UnsupportedAlgorithm):
        kind = "private" if is_private else "public"
        # Without the cause, which could quote the key.
        raise TokenError(f"the key can't be read: it is no {kind} key in PEM without a password") from None
    if not isinstance(getattr(key, "curve", None), ec.SECP256R1):
        raise TokenError("the key is none for ES256, which takes EC keys of P-256")
    return key if is_private or not hasattr(key, "public_key") else key.public_key()


def _pem(pem: Pem) -> bytes:
    if not jwt.algorithms.has_crypto:
        raise TokenError("ES256 needs cryptography: pip install 'ati-client[es256]'")
    text = pem.encode() if isinstance(pem, str) else pem
    if isinstance(text, bytes) and b"-----BEGIN" in text:
        return text
    try:
        with open(pem, "rb") as file:
            return file.read()
    except (OSError, TypeError, ValueError) as error:
        raise TokenError(f"the key file can't be read: {getattr(error, 'strerror', error)}") from error
