"""Session tokens: JWTs with the claims that ati reads."""

from __future__ import annotations

import os
import re
import time
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

_RATE = re.compile(r"\s*\d+\s*/\s*(s|sec|second|m|min|minute|h|hr|hour|d|day)\s*")


@dataclass
class AtiNamespace:
    """The claims below `ati`."""

    v: int = 1
    rate: Dict[str, str] = field(default_factory=dict)
    customer_id: Optional[str] = None

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> AtiNamespace:
        return cls(v=d.get("v", 1), rate=dict(d.get("rate") or {}), customer_id=d.get("customer_id"))

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
        missing = [name for name in ("sub", "aud", "iat", "exp", "scope") if name not in d]
        if missing:
            raise TokenMalformed(f"the token has no {missing[0]}")
        ati = d.get("ati")
        return cls(
            sub=d["sub"],
            aud=d["aud"],
            iat=int(d["iat"]),
            exp=int(d["exp"]),
            scope=d["scope"],
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
    if not sub.strip():
        raise TokenError("sub is empty: who is the token for?")
    now = int(time.time())
    claims = TokenClaims(
        sub=sub,
        aud=aud,
        iat=now,
        exp=now + int(ttl_seconds),
        scope=scope,
        iss=iss,
        jti=jti or str(uuid.uuid4()),
        ati=AtiNamespace(rate=_checked(rate), customer_id=customer_id),
        job_id=job_id,
        sandbox_id=sandbox_id,
    )
    key, algorithm = _key(secret, private_key)
    headers = {"kid": kid or DEFAULT_KID} if algorithm == "ES256" else None
    try:
        return jwt.encode(claims.to_dict(), key, algorithm=algorithm, headers=headers)
    except (TypeError, ValueError, jwt.PyJWTError) as error:
        raise TokenError(f"the token can't be signed: {error}") from error


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
    key, algorithm = _key(secret, public_key)
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
        raise TokenExpired("Token validation failed: it has expired") from error
    except (jwt.InvalidAudienceError, jwt.InvalidIssuerError) as error:
        raise TokenNotForUs(f"Token validation failed: {error}") from error
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
    for pattern, spec in (rate or {}).items():
        if not _RATE.fullmatch(spec):
            # The proxy would refuse the whole token.
            raise TokenError(f"rate of {pattern!r}: {spec!r} is no rate; like 10/hour")
    return dict(rate or {})


def _key(secret: Optional[str], pem: Optional[Pem]) -> "tuple[bytes, str]":
    if (secret is None) == (pem is None):
        raise TokenError("one key is needed: a secret for HS256, or a PEM key for ES256")
    if pem is not None:
        return _pem(pem), "ES256"
    try:
        key = bytes.fromhex((secret or "").strip())
    except ValueError:
        # Without the cause, which could quote the secret.
        raise TokenError("HS256 secret must be valid hex") from None
    if not key:
        raise TokenError("HS256 secret is empty")
    return key, "HS256"


def _pem(pem: Pem) -> bytes:
    if not jwt.algorithms.has_crypto:
        raise TokenError("ES256 needs cryptography: pip install 'ati-client[es256]'")
    text = pem.encode() if isinstance(pem, str) else pem
    if isinstance(text, bytes) and b"-----BEGIN" in text:
        return text
    try:
        with open(pem, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise TokenError(f"the key file can't be read: {getattr(error, 'strerror', error)}") from error
