"""What namespace.py runs inside of the sandbox: an agent's work, and a search for keys. Prints JSON."""

import asyncio
import json
import os
import pathlib
import socket
import subprocess

import requests
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

import ati

EDGE = os.environ["ATI_PROXY_URL"]


def run(*line):
    return subprocess.run(["ati", *line], capture_output=True, text=True)


async def mcp():
    server = StdioServerParameters(command="ati", args=["mcp", "serve"], env=dict(os.environ))
    async with stdio_client(server) as (reader, writer), ClientSession(reader, writer) as session:
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        result = await session.call_tool("shop:find", {"q": "mcp"})
        return {"tools": tools, "text": result.content[0].text}


def reached(host, port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def texts():
    """Everything that isn't the system's or Python's: what provisioning could have left."""
    found = []
    for top in ("/home", "/etc", "/opt", "/run", "/tmp", "/dev"):
        for path in pathlib.Path(top).rglob("*"):
            if path.is_file() and path.name != "ati":
                found.append(f"{path}: {path.read_bytes().decode('utf-8', 'replace')}")
    return "\n".join(found)


def main():
    session = requests.Session()
    unsigned = session.get(f"{EDGE}/route/x").status_code
    session.mount(EDGE, ati.SandboxAdapter())
    host, port = EDGE.removeprefix("http://").split(":")
    upstream = os.environ["UPSTREAM"].removeprefix("http://").split(":")
    routes = subprocess.run(["ip", "route"], capture_output=True, text=True).stdout
    seen = {
        "environment": dict(os.environ),
        "run": json.loads(run("run", "shop:find", "--q", "1").stdout),
        "denied": run("run", "shop:buy").returncode,
        "mcp": asyncio.run(mcp()),
        "routed": session.get(f"{EDGE}/route/x").json(),
        "unsigned": unsigned,
        "upstream_reached": reached(upstream[0], int(upstream[1])),
        "routes": [line.split()[0] for line in routes.splitlines()],
        "edge_port": int(port),
        # A few that a machine may have open, and those around the edge's.
        "ports": [number for number in sorted({22, 53, 80, 443, 8090, *range(int(port) - 50, int(port) + 51)}) if reached(host, number)],
    }
    seen["files"] = texts()
    print(json.dumps(seen))


main()
