"""Calls of tools, from inside of a sandbox."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Dict, List, Optional
from urllib.parse import quote

from ._http import Transport
from .errors import ProxyError, ProvisionError
from .signing import sandbox_secret, session_token


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
        answer = self._http.request(
            "POST",
            "/call",
            token=self._bearer(),
            body={"tool_name": tool, "args": args},
            reads_only=False,
            what=tool,
        )
        if not isinstance(answer, dict) or "result" not in answer:
            raise ProxyError(f"{self._http.base_url} is not an ATI proxy: its answer has no result", 200)
        return answer["result"]

    async def acall(self, tool: str, /, **args: Any) -> Any:
        """As `call`, for asyncio."""
        return await asyncio.to_thread(self.call, tool, **args)

    def tools(self, *, provider: Optional[str] = None, search: Optional[str] = None) -> List[Dict[str, Any]]:
        """The tools that the token allows."""
        query = {"provider": provider, "search": search}
        given = {name: value for name, value in query.items() if value}
        found = self._http.request("GET", "/tools", token=self._bearer(), query=given, what="tools")
        return list(found)

    def tool(self, name: str) -> Dict[str, Any]:
        """One tool, with the schema of its arguments."""
        path = f"/tools/{quote(name, safe='')}"
        return dict(self._http.request("GET", path, token=self._bearer(), what=name))

    def close(self) -> None:
        """Closes this thread's connection."""
        self._http.close()

    def __enter__(self) -> AtiClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _bearer(self) -> Optional[str]:
        return self._token or session_token()

    def _signing_secret(self) -> Optional[str]:
        return self._secret or sandbox_secret()


class AsyncAtiClient:
    """As `AtiClient`, for asyncio: `await AsyncAtiClient().call(tool, ...)`.

    Calls run on threads of asyncio's pool, which bounds how many run at once.
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
