"""What can go wrong, each with a type of its own. No message holds a secret."""

from __future__ import annotations

import json
from typing import Any, Mapping, Optional


class AtiError(Exception):
    """The base of all errors of this package."""


class ScopeError(AtiError):
    """A scope that can't be granted: a name is empty, or has white space in it."""


class TokenError(AtiError):
    """A token that can't be issued, or isn't valid."""


class TokenExpired(TokenError):
    """The token's time is over."""


class TokenNotForUs(TokenError):
    """The token is for another audience, or of another issuer."""


class TokenForged(TokenError):
    """The token's signature is not of this key."""


class TokenMalformed(TokenError):
    """The token can't be read, or lacks a claim."""


class SigningError(AtiError):
    """A request that can't be signed: there is no secret, or its path isn't written as it is sent."""


class ProvisionError(AtiError):
    """A sandbox that can't be provisioned."""


class ProxyError(ProvisionError):
    """The proxy refused a request, or a call failed. `status` is that of HTTP, 0 without an answer."""

    def __init__(
        self,
        message: str,
        status: int = 0,
        *,
        body: Any = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.body = body
        self.headers = {name.lower(): value for name, value in (headers or {}).items()}

    @property
    def request_id(self) -> Optional[str]:
        """The proxy's id of the request, which its logs have too."""
        return self.headers.get("x-request-id")

    @property
    def retry_after(self) -> Optional[float]:
        """Seconds to wait, where the proxy says so."""
        try:
            return float(self.headers["retry-after"])
        except (KeyError, ValueError):
            return None


class ProxyUnreachable(ProxyError, ConnectionError):
    """No answer. `was_sent` is True where the request may have been carried out nevertheless."""

    def __init__(self, message: str, *, was_sent: bool = False) -> None:
        super().__init__(message)
        self.was_sent = was_sent


class Unauthorized(ProxyError):
    """401: the token is missing, expired, or not of this proxy."""


class SignatureRefused(ProxyError):
    """403: the proxy takes signed requests only, and this one's signature is missing or wrong."""


class AccessDenied(ProxyError):
    """403: the token's scopes don't allow it."""


class NotFound(ProxyError):
    """404: there is no such tool or skill, or the token doesn't show it."""


class ConfirmationRequired(ProxyError):
    """409: a person has to confirm the call. `confirmation` is what the proxy says about it."""

    @property
    def confirmation(self) -> Mapping[str, Any]:
        found = self.body.get("confirmation") if isinstance(self.body, dict) else None
        return found if isinstance(found, dict) else {}


class InvalidArguments(ProxyError):
    """400 or 422: the tool doesn't take these arguments."""


class RateLimited(ProxyError):
    """429: too many calls. `retry_after` says how long to wait."""


class UpstreamError(ProxyError):
    """502 or 504: the service behind the tool failed, or took too long."""


class Unavailable(ProxyError):
    """503: the proxy, or the provider of the tool, can't answer now."""


_BY_STATUS = {
    400: InvalidArguments,
    401: Unauthorized,
    403: AccessDenied,
    404: NotFound,
    409: ConfirmationRequired,
    422: InvalidArguments,
    429: RateLimited,
    502: UpstreamError,
    503: Unavailable,
    504: UpstreamError,
}


def of_answer(status: int, headers: Mapping[str, str], body: Any, what: str) -> ProxyError:
    """The error of an answer. `body` is JSON where the answer was, otherwise its text."""
    kind = _BY_STATUS.get(status, ProxyError)
    said = ""
    if isinstance(body, dict) and body.get("error"):
        said = body["error"] if isinstance(body["error"], str) else json.dumps(body["error"])[:500]
    elif isinstance(body, str):
        said = body.strip()[:500]
        # The signature check answers with its reason alone, every other refusal with JSON.
        if status == 403:
            kind = SignatureRefused
    if not said and status == 401:
        said = "the session token is missing, expired, or not of this proxy"
    message = f"{what}: {status}"
    return kind(f"{message} {said}" if said else message, status, body=body, headers=headers)
