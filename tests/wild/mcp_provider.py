"""Servers behind `/mcp/{provider}`, asked by real clients: Python's mcp and npm's two libraries, in
both eras, with and without a token. What a client gets through ati has to be what it gets from the
server itself.

Usage: mcp_provider.py --ati BINARY --npm SERVERS --clients CLIENTS --everything FOLDER
       (with the Python that has mcp)
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile

HERE = sys.path.pop(0)
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

# Behind the library: mcp.py of this folder would be taken for it.
sys.path.append(HERE)
from wild import World, check, finish, free_port, listens, wait_for

CLIENTS = [("python", "handshake"), ("python", "stateless"), ("sdk", "handshake"), ("client", "handshake"), ("client", "stateless")]
EVERYTHING = [("echo", {"message": "hi"}), ("get-tiny-image", {}), ("get-structured-content", {"location": "New York"})]
REFERENCE = [("test_simple_text", {}), ("test_image_content", {}), ("test_multiple_content_types", {}), ("test_error_handling", {})]


async def python(url, headers, era, calls):
    http_client = httpx2.AsyncClient(headers=headers, timeout=60)
    server = streamable_http_client(url, http_client=http_client)
    mode = "2026-07-28" if era == "stateless" else "legacy"
    async with Client(server, mode=mode) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        answers = {}
        for name, args in calls:
            result = await client.call_tool(name, args)
            dump = result.model_dump(mode="json", by_alias=True, exclude_none=True)
            answers[name] = {
                "content": dump["content"],
                "structuredContent": dump.get("structuredContent"),
                "isError": dump.get("isError", False),
            }
        return {"names": names, "answers": answers}


def node(options, library, url, headers, era, calls):
    job = {"library": library, "era": era, "calls": calls, "modules": options.clients, "url": url, "headers": headers}
    # Node looks for modules next to the script.
    copy = f"{options.clients}/mcp_client.mjs"
    with open(f"{HERE}/mcp_client.mjs") as source, open(copy, "w") as target:
        target.write(source.read())
    done = subprocess.run(["node", copy, json.dumps(job)], capture_output=True, text=True, timeout=120)
    check(f"{library} of {era} at {url}", done.returncode == 0, done.stderr)
    return json.loads(done.stdout)


def ask(options, client, url, headers, era, calls):
    if client == "python":
        return asyncio.run(python(url, headers, era, calls))
    return node(options, client, url, headers, era, calls)


def go(world, options):
    npm, reference = free_port(), free_port()
    program = f"{options.npm}/node_modules/.bin/mcp-server-everything"
    world.start([program, "streamableHttp"], PORT=str(npm))
    world.start([sys.executable, "-m", "mcp_everything_server", "--port", str(reference)], PYTHONPATH=options.everything)
    wait_for("the servers", lambda: listens(npm) and listens(reference))
    urls = {"over_http": f"http://127.0.0.1:{npm}/mcp", "reference": f"http://127.0.0.1:{reference}/mcp"}
    world.manifest("program", f'mcp_command = "{program}"')
    for name, url in urls.items():
        world.manifest(name, f'mcp_transport = "http"\nmcp_url = "{url}"')
    secret = "ab" * 32
    open_proxy, closed = world.proxy(), world.proxy(ATI_JWT_SECRET=secret)
    open_proxy.wait_until_ready()
    closed.wait_until_ready()
    scope = "tool:program:* tool:over_http:* tool:reference:*"
    issued = world.run("token", "issue", "--sub", "wild", "--scope", scope, "--ttl", "3600", "--secret", secret)
    check("a token", issued.returncode == 0, issued.stderr)
    token = {"Authorization": f"Bearer {issued.stdout.strip()}"}
    for provider in ("program", "over_http", "reference"):
        calls = REFERENCE if provider == "reference" else EVERYTHING
        direct = urls["reference" if provider == "reference" else "over_http"]
        for client, era in CLIENTS:
            # The servers of npm speak the handshake era only.
            their_era = era if provider == "reference" else "handshake"
            expected = ask(options, client, direct, {}, their_era, calls)
            for proxy, headers in ((open_proxy, {}), (closed, token)):
                what = f"{provider}: {client} of the {era} era {'with a token' if headers else 'without'}"
                told = ask(options, client, f"http://{proxy.edge}/mcp/{provider}", headers, era, calls)
                check(f"{what}: the same tools", told["names"] == expected["names"], told["names"])
                check(f"{what}: the same answers", told["answers"] == expected["answers"], (told["answers"], expected["answers"]))
    refused = subprocess.run(
        ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", "POST", f"http://{closed.edge}/mcp/program"],
        capture_output=True,
        text=True,
    )
    check("nothing without the token", refused.stdout == "401", refused.stdout)


def main():
    parser = argparse.ArgumentParser()
    for name in ("--ati", "--npm", "--clients", "--everything"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ati-mcp-") as home:
        world = World(options.ati, home)
        try:
            go(world, options)
        finally:
            world.end()
    finish("of real clients at /mcp/{provider}")


main()
