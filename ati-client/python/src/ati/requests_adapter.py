"""For requests: `session.mount("https://edge/", SandboxAdapter())` signs every request to it."""

from __future__ import annotations

import re
from typing import Any, Optional

import requests
from requests.adapters import HTTPAdapter

from .signing import HEADER, signature

_ESCAPE = re.compile(r"%[0-9a-fA-F]{2}")


class SandboxAdapter(HTTPAdapter):
    """Signs what it sends. Mount it for the edge's URL only: a redirect to another host leaves it.
    End that URL with a slash: requests compares beginnings, and `https://edge.example.com` is also
    the beginning of `https://edge.example.com.evil.net/`.

    The secret is looked up for each request where none is given, so that it can be rotated.
    """

    # HTTPAdapter copies these when a session is pickled.
    __attrs__ = [*HTTPAdapter.__attrs__, "_secret"]

    def __init__(self, secret: Optional[str] = None, **options: Any) -> None:
        super().__init__(**options)
        self._secret = secret

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        path = request.path_url.split("?", 1)[0]
        # urllib3 writes escapes in capitals when it sends them.
        path = _ESCAPE.sub(lambda escape: escape.group().upper(), path)
        # The session's own request stays without it: requests copies that one for a redirect, which
        # may lead to another host.
        request = request.copy()
        request.headers[HEADER] = signature(request.method or "GET", path, secret=self._secret)
        return super().send(request, *args, **options)
