"""Any MCP client with ati: tools of OpenAPI and HTTP (Crossref, arXiv, Hacker News).

    pip install -r requirements.txt
    python openapi_agent.py

This is what Claude Desktop, Cursor, VS Code and other clients do, in a few lines: they start
`ati mcp serve` (mcp.json of this folder tells them to), list its tools and call them. Where
ATI_PROXY_URL is set, the tools and their keys are on the proxy; otherwise they are those of ATI_DIR.
A client that speaks HTTP can use <ATI_PROXY_URL>/mcp itself, with the token as its bearer.
"""

import asyncio
import json
import os
import pathlib
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

ATI_DIR = os.environ.get("ATI_DIR", str(pathlib.Path(__file__).resolve().parents[2]))
CALLS = [
    ("crossref:listWorks", {"query": "proxies", "rows": 1}),
    ("arxiv_search", {"search_query": "all:proxies", "max_results": 1}),
    ("hackernews_top_stories", {}),
]


async def main() -> None:
    env = {**os.environ, "ATI_DIR": ATI_DIR}
    server = StdioServerParameters(command="ati", args=["mcp", "serve"], env=env)
    async with stdio_client(server) as (reader, writer), ClientSession(reader, writer) as session:
        await session.initialize()
        names = [tool.name for tool in (await session.list_tools()).tools]
        print(f"{len(names)} tools: {', '.join(names[:10])}")
        calls = [(sys.argv[1], json.loads(sys.argv[2]))] if len(sys.argv) > 2 else CALLS
        for name, arguments in calls:
            result = await session.call_tool(name, arguments)
            for block in result.content:
                print(f"{name}: {getattr(block, 'text', block)}")


asyncio.run(main())
