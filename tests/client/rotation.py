"""Agents that outlive their tokens: a loop of `AtiClient` in one process, and one MCP session over
`ati mcp serve`, while `ati token rotate-file` replaces the token. Usage: rotation.py --ati BINARY"""

import argparse
import asyncio
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import time

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

import ati
import client
from client import SECRET, check

# The agents work for twice as long as a token is valid. Six times as long as it is the newest one, so
# that a call on a busy machine doesn't outlive the token that it began with.
EVERY, TTL, SECONDS = "1", "6", 12


def looped(url, until, outcome):
    """Calls as fast as it can. An exception is the test's failure."""
    try:
        with ati.AtiClient(url) as agent:
            while time.monotonic() < until:
                agent.call("shop:find", q="x")
                outcome["calls"] += 1
                outcome["tokens"].add(pathlib.Path(os.environ["ATI_SESSION_TOKEN_FILE"]).read_text())
    except ati.AtiError as error:
        outcome["error"] = repr(error)


async def session(ati_binary, env, until):
    calls = 0
    server = StdioServerParameters(command=ati_binary, args=["mcp", "serve"], env=env)
    async with stdio_client(server) as (reader, writer), ClientSession(reader, writer) as mcp:
        await mcp.initialize()
        while time.monotonic() < until:
            result = await mcp.call_tool("shop:find", {"q": "x"})
            if "seen-by-the-upstream" not in result.content[0].text:
                check("a call over MCP", False, result)
            calls += 1
    return calls


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ati", required=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        home = pathlib.Path(home)
        edge = client.Edge(args.ati, home / "edge")
        edge.write("manifests/shop.toml", f'[provider]\nname = "shop"\nbase_url = "{client.upstream()}"\n[[tools]]\nname = "shop:find"\nendpoint = "/find"\n')
        edge.start()
        file = home / "session_token"
        line = [args.ati, "token", "rotate-file", str(file), "--every", EVERY, "--ttl", TTL, "--sub", "agent", "--scope", "tool:shop:*"]
        rotator = subprocess.Popen(line, env=edge.env(ATI_JWT_SECRET=SECRET), stderr=subprocess.DEVNULL)
        try:
            while not file.exists():
                time.sleep(0.01)
            os.environ["ATI_SESSION_TOKEN_FILE"] = str(file)
            until = time.monotonic() + SECONDS
            outcome = {"calls": 0, "tokens": set(), "error": None}
            loop = threading.Thread(target=looped, args=(edge.url, until, outcome))
            loop.start()
            env = edge.env(ATI_PROXY_URL=edge.url, ATI_SESSION_TOKEN_FILE=str(file), ATI_DIR=str(home / "box"))
            over_mcp = asyncio.run(session(args.ati, env, until))
            loop.join()
            check("no call of the loop failed", outcome["error"] is None and outcome["calls"] > 20, outcome["error"])
            check("it used several tokens", len(outcome["tokens"]) >= 5, len(outcome["tokens"]))
            check("no call of the MCP session failed", over_mcp > 20, over_mcp)
            rotator.send_signal(signal.SIGTERM)
            check("the rotation ends cleanly", rotator.wait(10) == 0)
            print(f"{outcome['calls']} calls and {over_mcp} over MCP, with {len(outcome['tokens'])} tokens of {TTL} s")
        finally:
            rotator.kill()
            edge.stop()
    client.finish("of rotation")


if __name__ == "__main__":
    main()
