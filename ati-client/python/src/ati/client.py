"""Calls of tools, from inside of a sandbox."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Dict, List, Optional
from urllib.parse import quote

from ._http import Transport
from .errors import ProvisionError, ProxyError, Unauthorized, of_answer
from .signing import absent_token_file, sandbox_secret, session_token


class AtiClient:
    """Calls tools through the proxy.

    >>> AtiClient().call("github:search_repositories", query="ati")   # doctest: +SKIP

    What isn't given comes from the variables that a provisioned sandbox has: ATI_PROXY_URL,
    ATI_SESSION_TOKEN or its file, and ATI_SANDBOX_SECRET or its file where the proxy wants signed
    requests. Files are read for each call, so a rotated token is used at once. A client may be used
    by several threads.
    """

    def __init__(
        self,
        proxy_url: Optional[str] = None,
        token: Optional[str] = None,
        *,
        sandbox_secret: Optional[str] = None,
        timeout: float = 120.0,
        retries: int = 2,
    ) -> None:
        url = proxy_url or os.environ.get("ATI_PROXY_URL", "")
        if not url.strip():
            raise ProvisionError("where is the proxy? Give proxy_url, or set ATI_PROXY_URL")
        self._token, self._secret = token, sandbox_secret
        self._http = Transport(url, self._signing_secret, timeout=timeout, retries=retries)

    def call(self, tool: str, /, **args: Any) -> Any:
        """The result of a tool. A name that is none in Python: `call(tool, **{"query.term": "x"})`.

        A call is sent once, unless the proxy can't have seen it.
        """
        body = {"tool_name": tool, "args": args}
        answer = self._ask("POST", "/call", body=body, reads_only=False, what=tool)
        # Some proxies say in a 200 that a call failed.
        if isinstance(answer, dict) and answer.get("error"):
            raise of_answer(200, {}, answer, tool)
        if not isinstance(answer, dict) or "result" not in answer:
            raise self._stranger("has no result", answer)
        return answer["result"]

    async def acall(self, tool: str, /, **args: Any) -> Any:
        """As `call`, for asyncio."""
        return await asyncio.to_thread(self.call, tool, **args)

    def tools(self, *, provider: Optional[str] = None, search: Optional[str] = None) -> List[Dict[str, Any]]:
        """The tools that the token allows."""
        query = {"provider": provider, "search": search}
        given = {name: value for name, value in query.items() if value}
        found = self._ask("GET", "/tools", query=given, what="tools")
        if not isinstance(found, list) or not all(isinstance(tool, dict) for tool in found):
            raise self._stranger("is no list of tools", found)
        return found

    def tool(self, name: str) -> Dict[str, Any]:
        """One tool, with the schema of its arguments."""
        path = f"/tools/{quote(name, safe='')}"
        found = self._ask("GET", path, what=name)
        if not isinstance(found, dict):
            raise self._stranger("is no tool", found)
        return found

    def close(self) -> None:
        """Closes this thread's connection."""
        self._http.close()

    def __enter__(self) -> AtiClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        bearer = self._bearer()
        try:
            return self._http.request(method, path, token=bearer, **request)
        except Unauthorized as refused:
            absent = absent_token_file() if bearer is None else None
            if absent is None:
                raise
            message = f"{refused}; ATI_SESSION_TOKEN_FILE names {absent}, which isn't there"
            raise Unauthorized(message, refused.status, body=refused.body, headers=refused.headers) from None

    def _stranger(self, why: str, answer: Any) -> ProxyError:
        return ProxyError(f"{self._http.base_url} is not an ATI proxy: its answer {why}", 200, body=answer)

    def _bearer(self) -> Optional[str]:
        return self._token or session_token()

    def _signing_secret(self) -> Optional[str]:
        return self._secret or sandbox_secret()


class AsyncAtiClient:
    """As `AtiClient`, for asyncio: `await AsyncAtiClient().call(tool, ...)`.

    Calls run on threads of asyncio's pool, which bounds how many run at once. `async with` closes
    its connections.
    """

    def __init__(
        self,
        proxy_url: Optional[str] = None,
        token: Optional[str] = None,
        *,
        sandbox_secret: Optional[str] = None,
        timeout: float = 120.0,
        retries: int = 2,
    ) -> None:
        self._client = AtiClient(
            proxy_url, token, sandbox_secret=sandbox_secret, timeout=timeout, retries=retries
        )

    async def call(self, tool: str, /, **args: Any) -> Any:
        return await asyncio.to_thread(self._client.call, tool, **args)

    async def tools(
        self, *, provider: Optional[str] = None, search: Optional[str] = None
    ) -> List[Dict[str, Any]]:
        return await asyncio.to_thread(self._client.tools, provider=provider, search=search)

    async def tool(self, name: str) -> Dict[str, Any]:
        return await asyncio.to_thread(self._client.tool, name)

    async def close(self) -> None:
        """Closes the connections. No call may be running."""
        await asyncio.to_thread(self._client._http.close_all)

    async def __aenter__(self) -> AsyncAtiClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
