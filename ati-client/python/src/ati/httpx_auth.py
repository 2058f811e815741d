"""For httpx: `httpx.Client(auth=SandboxAuth())` signs every request."""

from __future__ import annotations

from typing import Generator, Optional

import httpx

from .signing import HEADER, signature


class SandboxAuth(httpx.Auth):
    """Signs requests, of `httpx.Client` and of `httpx.AsyncClient`.

    With `proxy_url`, only those to that origin. The secret is looked up for each request where none
    is given, so that it can be rotated.
    """

    def __init__(self, secret: Optional[str] = None, *, proxy_url: Optional[str] = None) -> None:
        self._secret = secret
        self._origin = None if proxy_url is None else _origin(httpx.URL(proxy_url))

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if self._origin is None or self._origin == _origin(request.url):
            path = request.url.raw_path.split(b"?", 1)[0].decode("ascii")
            request.headers[HEADER] = signature(request.method, path, secret=self._secret)
        yield request


def _origin(url: httpx.URL) -> "tuple[str, str, Optional[int]]":
    return url.scheme, url.host, url.port
