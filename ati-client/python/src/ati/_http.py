"""Requests to a proxy, with the standard library: kept connections, retries, errors with types."""

from __future__ import annotations

import http.client
import json
import random
import re
import select
import ssl
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple
from urllib.parse import SplitResult, urlencode, urlsplit

from .errors import InvalidArguments, ProvisionError, ProxyUnreachable, TokenMalformed, of_answer
from .signing import signature

#: Statuses of a proxy that is busy or being replaced. A request that only reads is sent again.
_PASSING = (502, 503, 504)
#: Seconds before the second attempt; twice as long before each further one.
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
#: Bytes of an answer.
_LARGEST = 2 << 30
_PIECE = 64 << 10

#: What a header or a URL can hold as it is.
_PLAIN = re.compile(r"[!-~]+")
#: How virtual keys begin, which stand in the place of tokens.
_VIRTUAL_KEY = "ati-key_"

Secret = Callable[[], Optional[str]]


class Transport:
    """One connection for each thread."""

    def __init__(self, proxy_url: str, secret: Secret, *, timeout: float, retries: int) -> None:
        url = _parsed(proxy_url)
        self.base_url = proxy_url.strip().rstrip("/")
        self._base_path = url.path.rstrip("/")
        self._host, self._port, self._tls = url.hostname or "", url.port, url.scheme == "https"
        self._secret, self._timeout, self._retries = secret, timeout, max(0, retries)
        self._local = threading.local()
        self._lock = threading.Lock()
        self._open: "weakref.WeakSet[http.client.HTTPConnection]" = weakref.WeakSet()

    def request(
        self,
        method: str,
        path: str,
        *,
        token: Optional[str] = None,
        query: Optional[Mapping[str, str]] = None,
        body: Any = None,
        reads_only: bool = True,
        what: str,
    ) -> Any:
        """The JSON of an answer. A request that doesn't only read is sent again only where the
        proxy can't have seen it."""
        attempt = 0
        while True:
            try:
                status, headers, content = self._send(method, path, token, query, body)
            except ProxyUnreachable as error:
                if attempt >= self._retries or (error.was_sent and not reads_only):
                    raise
                self._pause(attempt, None)
            else:
                answer = _decoded(headers, content)
                if 200 <= status < 300:
                    return answer
                refused = of_answer(status, headers, answer, what)
                if attempt >= self._retries or not reads_only or status not in _PASSING:
                    raise refused
                self._pause(attempt, refused.retry_after)
            attempt += 1

    def close(self) -> None:
        """Closes this thread's connection."""
        connection = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None

    def close_all(self) -> None:
        """Closes the connections of all threads. None of them may be in use."""
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            connection.close()

    @staticmethod
    def _pause(attempt: int, asked: Optional[float]) -> None:
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * (1 << min(attempt, 10)))
        # Spread, so that a thousand sandboxes don't come back at once.
        pause *= 0.5 + random.random()
        time.sleep(min(_LONGEST_PAUSE, max(pause, asked or 0.0)))

    def _send(
        self,
        method: str,
        path: str,
        token: Optional[str],
        query: Optional[Mapping[str, str]],
        body: Any,
    ) -> Tuple[int, Dict[str, str], bytes]:
        path = self._base_path + path
        headers = {"Accept": "application/json", "User-Agent": "ati-client/0.9"}
        content = None
        if body is not None:
            content = _encoded(body)
            headers["Content-Type"] = "application/json"
        if token:
            headers["Authorization"] = _authorization(token)
        secret = self._secret()
        if secret:
            headers["X-Sandbox-Signature"] = signature(method, path, secret=secret)
        target = f"{path}?{urlencode(query)}" if query else path
        connection = self._connection()
        try:
            connection.request(method, target, content, headers)
            response = connection.getresponse()
            data = _read(response)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            why = str(error) or type(error).__name__
            raise ProxyUnreachable(f"{self.base_url} doesn't answer: {why}", was_sent=True) from error
        if response.will_close:
            self.close()
        names = {name.lower(): value for name, value in response.getheaders()}
        return response.status, names, data

    def _connection(self) -> http.client.HTTPConnection:
        kept: Optional[http.client.HTTPConnection] = getattr(self._local, "connection", None)
        if kept is not None and kept.sock is not None and not _is_over(kept.sock):
            return kept
        self.close()
        if self._tls:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)
        try:
            connection.connect()
        except OSError as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ProxyUnreachable(f"{self.base_url} can't be reached: {why}") from error
        self._local.connection = connection
        with self._lock:
            self._open.add(connection)
        return connection


def _parsed(proxy_url: Any) -> SplitResult:
    """The URL of a proxy. What is wrong with it is said without it: it may hold a password."""
    if not isinstance(proxy_url, str):
        raise ProvisionError("proxy_url must be an http or https URL")
    text = proxy_url.strip()
    try:
        url = urlsplit(text)
        usable = url.scheme in ("http", "https") and url.hostname and (url.port or 0) >= 0
    except ValueError:
        usable = None
    if not usable or not _PLAIN.fullmatch(text) or "?" in text or "#" in text:
        raise ProvisionError("proxy_url must be an http or https URL without a query")
    if "@" in url.netloc:
        raise ProvisionError("proxy_url must not have a user name or password in it")
    return url


def _authorization(token: Any) -> str:
    """The header's value. A token that can't stand in a header is not quoted in the error."""
    text = token.strip() if isinstance(token, str) else ""
    if not _PLAIN.fullmatch(text):
        raise TokenMalformed("the session token isn't one line of text without blanks")
    return f"Ati-Key {text}" if text.startswith(_VIRTUAL_KEY) else f"Bearer {text}"


def _encoded(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArguments(f"what is sent can't be written as JSON: {error}") from error


def _read(response: http.client.HTTPResponse) -> bytes:
    # In pieces: older Pythons make room for all that is asked for.
    pieces: List[bytes] = []
    length = 0
    while True:
        piece = response.read(_PIECE)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        length += len(piece)
        if length > _LARGEST:
            raise http.client.HTTPException("its answer is longer than 2 GiB")


def _is_over(sock: Any) -> bool:
    """Whether the proxy has closed a connection that was kept."""
    try:
        poll = select.poll()
        poll.register(sock, select.POLLIN | select.POLLHUP | select.POLLERR)
        return bool(poll.poll(0))
    except (OSError, ValueError):
        return True


def _decoded(headers: Mapping[str, str], content: bytes) -> Any:
    text = content.decode("utf-8", "replace")
    if "json" in headers.get("content-type", ""):
        try:
            return json.loads(text)
        except ValueError:
            pass
    return text
