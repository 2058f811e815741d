"""For httpx: `httpx.Client(auth=SandboxAuth())` signs every request."""

from __future__ import annotations

from typing import AsyncGenerator, Generator, List, Optional, Tuple

import httpx

from .errors import ProvisionError
from .signing import HEADER, signature

Origin = Tuple[str, str, Optional[int]]

#: What the edge says to a request without a signature.
_REFUSED = "missing_signature"
#: Redirects within the edge that are signed anew, for one request.
_MOST_REDIRECTS = 20


class SandboxAuth(httpx.Auth):
    """Signs requests, of `httpx.Client` and of `httpx.AsyncClient`.

    With `proxy_url`, only those to that origin. A redirect to another origin is never signed. One
    within the edge is refused first, because httpx follows it without asking, and then sent again
    with a signature of its own. The secret is looked up for each request where none is given, so
    that it can be rotated.
    """

    def __init__(self, secret: Optional[str] = None, *, proxy_url: Optional[str] = None) -> None:
        self._secret = secret
        try:
            self._origin = None if proxy_url is None else _origin(httpx.URL(proxy_url))
        except httpx.InvalidURL:
            raise ProvisionError("proxy_url must be an http or https URL") from None

    def sync_auth_flow(
        self, request: httpx.Request
    ) -> Generator[httpx.Request, httpx.Response, None]:
        edge = self._origin or _origin(request.url)
        response = yield self._signed(request) if _origin(request.url) == edge else request
        for _ in range(_MOST_REDIRECTS):
            if not _is_unsigned(response, edge):
                return
            response.read()
            if response.text.strip() != _REFUSED:
                return
            response = yield self._signed(response.request)

    async def async_auth_flow(
        self, request: httpx.Request
    ) -> AsyncGenerator[httpx.Request, httpx.Response]:
        edge = self._origin or _origin(request.url)
        response = yield self._signed(request) if _origin(request.url) == edge else request
        for _ in range(_MOST_REDIRECTS):
            if not _is_unsigned(response, edge):
                return
            await response.aread()
            if response.text.strip() != _REFUSED:
                return
            response = yield self._signed(response.request)

    def _signed(self, request: httpx.Request) -> httpx.Request:
        path = request.url.raw_path.split(b"?", 1)[0].decode("ascii")
        value = signature(request.method, path, secret=self._secret)
        request.headers = _SignedHeaders(request.headers, value)
        return request


class _SignedHeaders(httpx.Headers):
    """Headers with a signature that is only in what is sent. httpx copies a request's headers for a
    redirect, and the copy is without it: it would be for another path, or reach another host."""

    def __init__(self, headers: httpx.Headers, value: str) -> None:
        super().__init__([(name, text) for name, text in headers.raw if name.lower() != _NAME])
        self._value = value.encode("ascii")

    @property
    def raw(self) -> List[Tuple[bytes, bytes]]:
        return [*super().raw, (HEADER.encode("ascii"), self._value)]


def _is_unsigned(response: httpx.Response, edge: Origin) -> bool:
    """Whether this may be the edge's refusal of a redirect that httpx followed without a signature."""
    last = response.request
    is_signed = isinstance(last.headers, _SignedHeaders)
    return response.status_code == 403 and not is_signed and _origin(last.url) == edge


_NAME = HEADER.lower().encode("ascii")


def _origin(url: httpx.URL) -> Origin:
    return url.scheme, url.host, url.port
