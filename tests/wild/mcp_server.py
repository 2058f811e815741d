#!/usr/bin/env python3
"""ati as an MCP server, asked by real clients: Python's mcp and npm's two libraries, in both eras,
at /mcp and through `ati mcp serve`, with and without a token. Results of an npm server have to be
the same as those that the client gets from that server itself.

Usage: mcp_server.py --ati BINARY --npm SERVERS --clients CLIENTS   (with the Python that has mcp)
"""

import argparse
import asyncio
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

# Otherwise mcp.py of this folder would be taken for the library.
del sys.path[0]
import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

checks = 0
CALLS = [
    ("web:look", {"q": "a b"}),
    ("everything:echo", {"message": "hi"}),
    ("everything:get-tiny-image", {}),
    ("everything:get-structured-content", {"location": "New York"}),
]


def check(what, good, seen=None):
    global checks
    checks += 1
    if not good:
        sys.exit(f"FAIL: {what}: {seen}")


def wait_for(what, condition, seconds=60):
    end = time.time() + seconds
    while not condition():
        if time.time() > end:
            sys.exit(f"FAIL: {what} never happened")
        time.sleep(0.05)


class Page(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = json.dumps({"path": self.path}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class World:
    def __init__(self, options, home):
        self.ati, self.options, self.home, self.started = options.ati, options, home, []
        os.makedirs(f"{home}/manifests")
        page = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=page.serve_forever, daemon=True).start()
        self.server = [f"{options.npm}/node_modules/.bin/mcp-server-everything"]
        with open(f"{home}/manifests/web.toml", "w") as file:
            file.write(f'[provider]\nname = "web"\nbase_url = "http://127.0.0.1:{page.server_port}"\n')
            file.write('[[tools]]\nname = "web:look"\nendpoint = "/look"\n')
        with open(f"{home}/manifests/everything.toml", "w") as file:
            file.write(f'[provider]\nname = "everything"\nhandler = "mcp"\nmcp_command = "{self.server[0]}"\n')

    def env(self, **more):
        return {"PATH": os.environ["PATH"], "HOME": self.home, "ATI_DIR": self.home, "ATI_KEY_FILE": f"{self.home}/none", **more}

    def proxy(self, name, *args, **more):
        ready = f"{self.home}/{name}"
        command = [self.ati, "proxy", "--port", "0", "--admin", "127.0.0.1:0", "--ready-file", ready, *args]
        log = open(f"{self.home}/{name}.log", "w")
        self.started.append(subprocess.Popen(command, env=self.env(**more), stdin=subprocess.DEVNULL, stderr=log))
        wait_for(name, lambda: os.path.exists(ready) and os.path.getsize(ready))
        with open(ready) as file:
            where = json.load(file)

        def states():
            with urllib.request.urlopen(f"http://{where['admin']}/providers", timeout=10) as answer:
                return json.load(answer)

        wait_for("the list of tools", lambda: all(one["state"] == "ready" for one in states().values()))
        return "http://" + where["edge"]

    def end(self):
        for process in self.started:
            process.kill()
            process.wait()


async def python(place, era, calls):
    if "url" in place:
        http_client = httpx2.AsyncClient(headers=place.get("headers", {}), timeout=60)
        server = streamable_http_client(place["url"], http_client=http_client)
    else:
        server = StdioServerParameters(command=place["command"][0], args=place["command"][1:], env=place["env"])
    mode = "2026-07-28" if era == "stateless" else "legacy"
    async with Client(server, mode=mode) as client:
        names, cursor = [], None
        while True:
            page = await client.list_tools(cursor=cursor)
            names += [tool.name for tool in page.tools]
            cursor = page.next_cursor
            if not cursor:
                break
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


def node(options, library, place, era, calls):
    job = {"library": library, "era": era, "calls": calls, "modules": options.clients, **place}
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "mcp_client.mjs")
    # Node looks for modules next to the script.
    copy = f"{options.clients}/mcp_client.mjs"
    with open(script) as source, open(copy, "w") as target:
        target.write(source.read())
    done = subprocess.run(["node", copy, json.dumps(job)], capture_output=True, text=True, timeout=120)
    if done.returncode:
        sys.exit(f"FAIL: {library} {era} {place}: {done.stderr}")
    return json.loads(done.stdout)


def ask(options, client, place, era, calls):
    if client == "python":
        return asyncio.run(python(place, era, calls))
    return node(options, client, place, era, calls)


async def progress(place, era):
    """Reports of a call that takes its time."""
    seen = []

    async def note(done, total, message):
        seen.append(done)

    if "url" in place:
        server = streamable_http_client(place["url"], http_client=httpx2.AsyncClient(timeout=60))
    else:
        server = StdioServerParameters(command=place["command"][0], args=place["command"][1:], env=place["env"])
    async with Client(server, mode="2026-07-28" if era == "stateless" else "legacy") as client:
        args = {"duration": 0.4, "steps": 4}
        await client.call_tool("everything:trigger-long-running-operation", args, progress_callback=note)
    return seen


def places(world):
    ati = world.ati
    world.run = lambda *args: subprocess.run([ati, *args], env=world.env(), capture_output=True, text=True, check=True).stdout
    secret = "planted-wild-signing"
    with open(f"{world.home}/credentials", "w") as file:
        os.chmod(file.name, 0o600)
        json.dump({"sandbox_signing_shared_secret": secret}, file)
    hexadecimal = "ab" * 32
    open_proxy = world.proxy("open")
    closed = world.proxy("closed", ATI_JWT_SECRET=hexadecimal)
    signed = world.proxy("signed", "--sig-verify-mode", "enforce", ATI_JWT_SECRET=hexadecimal)
    issue = [ati, "token", "issue", "--sub", "wild", "--scope", "*", "--ttl", "3600", "--secret", hexadecimal]
    done = subprocess.run(issue, env=world.env(), capture_output=True, text=True)
    token = done.stdout.strip()
    check("a token", done.returncode == 0 and token.count(".") == 2, done.stderr)
    serve = [ati, "mcp", "serve"]
    yield "/mcp", {"url": f"{open_proxy}/mcp"}
    yield "/mcp with a token", {"url": f"{closed}/mcp", "headers": {"Authorization": f"Bearer {token}"}}
    yield "ati mcp serve", {"command": serve, "env": world.env()}
    yield "the bridge", {"command": serve, "env": world.env(ATI_PROXY_URL=open_proxy)}
    signing = {"ATI_SANDBOX_SECRET": secret, "ATI_SESSION_TOKEN": token}
    yield "the bridge with a token and a signature", {"command": serve, "env": world.env(ATI_PROXY_URL=signed, **signing)}


def main():
    parser = argparse.ArgumentParser()
    for name in ("--ati", "--npm", "--clients"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ati-mcp-") as home:
        world = World(options, home)
        try:
            go(world, options)
        finally:
            world.end()
    print(f"{checks} checks of ati as an MCP server")


def go(world, options):
    clients = [("python", "handshake"), ("python", "stateless"), ("sdk", "handshake"), ("client", "handshake"), ("client", "stateless")]
    direct = {"command": world.server, "env": world.env()}
    own = [(name.removeprefix("everything:"), args) for name, args in CALLS[1:]]
    expected = {client: ask(options, client, direct, "handshake", own)["answers"] for client in ("python", "sdk", "client")}
    for place_name, place in places(world):
        # A local server lists while its client already asks.
        if place_name == "ati mcp serve":
            world.run("tool", "list")
        for client, era in clients:
            what = f"{client}, {era} era, {place_name}"
            told = ask(options, client, place, era, CALLS)
            check(f"{what}: tools", {"web:look", "everything:echo"} <= set(told["names"]), told["names"])
            check(f"{what}: their order", told["names"] == sorted(told["names"]), told["names"])
            answers = told["answers"]
            look = json.loads(answers["web:look"]["content"][0]["text"])
            check(f"{what}: an HTTP tool", look == {"path": "/look?q=a%20b"}, look)
            for name, same in expected[client].items():
                seen = answers[f"everything:{name}"]
                check(f"{what}: {name} is unchanged", seen == same, (seen, same))
        if place_name in ("/mcp", "ati mcp serve", "the bridge"):
            for era in ("handshake", "stateless"):
                seen = asyncio.run(progress(place, era))
                check(f"progress, {era} era, {place_name}", seen == sorted(seen) and len(seen) >= 2, seen)
        print(f"{place_name}: {checks} checks so far", flush=True)


main()
