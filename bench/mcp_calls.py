#!/usr/bin/env python3
"""What a call of a stdio MCP tool costs the proxy, for two binaries in interleaved rounds of one run, on loopback.

The server is a small program in Python that answers each call with one text. CPU time is that of the proxy process alone (all of its
threads, none of its children), per call, with one caller and with sixteen. What counts is the ratio of the two binaries.

Usage: mcp_calls.py BEFORE AFTER [--rounds N] [--seconds S] [--workers N] [--http] [--native]
"""

import argparse, json, os, shutil, statistics, subprocess, sys, tempfile, time, urllib.request
from pathlib import Path

from passthrough import LOAD_CORE, PROXY_CORE, Contender, free_port, wait_for

SERVER = r'''
import asyncio, json, re, sys

def answer(message):
    method, id = message.get("method"), message.get("id")
    if id is None:
        return None
    if method == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "bench", "version": "1"}}
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
        result = {"tools": [{"name": "echo", "description": "echo", "inputSchema": schema}]}
    elif method == "tools/call":
        result = {"content": [{"type": "text", "text": "Echo: " + message["params"]["arguments"]["message"]}]}
    else:
        return {"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}
    return {"jsonrpc": "2.0", "id": id, "result": result}

async def serve(reader, writer):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", head)
            body = await reader.readexactly(int(length[1])) if length else b""
            said = answer(json.loads(body)) if head.startswith(b"POST") else None
            body = b"" if said is None else json.dumps(said).encode()
            status = b"405 No" if head.startswith(b"GET") else b"202 Accepted" if said is None else b"200 OK"
            writer.write(b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()

async def over_http(port):
    async with await asyncio.start_server(serve, "127.0.0.1", port) as server:
        await server.serve_forever()

if len(sys.argv) > 1:
    asyncio.run(over_http(int(sys.argv[1])))
buffered = sys.stdin.buffer
for line in buffered:
    said = answer(json.loads(line))
    if said is not None:
        sys.stdout.buffer.write(json.dumps(said).encode() + b"\n")
        sys.stdout.buffer.flush()
'''
CALL = {"tool_name": "bench:echo", "args": {"message": "hello world"}}
NATIVE = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "bench:echo", "arguments": {"message": "hello world"}}}


class Calls(Contender):
    """One binary with one MCP server, asked at /call or at /mcp."""

    def __init__(self, name, binary, work, options, upstream):
        work.mkdir()
        (work / "manifests").mkdir()
        server = work / "server.py"
        server.write_text(SERVER)
        transport = (f'mcp_transport = "http"\nmcp_url = "http://127.0.0.1:{upstream}/mcp"\n' if options.http else
                     f'mcp_command = "taskset"\nmcp_args = ["-c", "{LOAD_CORE}", "{sys.executable}", "{server}"]\n')
        (work / "manifests" / "bench.toml").write_text(f'[provider]\nname = "bench"\nhandler = "mcp"\n{transport}')
        (work / "ati.toml").write_text(f"[server]\nworkers = {options.workers}\n[log]\naccess = false\n")
        self.environment = dict(PATH=os.environ["PATH"], HOME=str(work), ATI_DIR=str(work), RUST_LOG="warn", ATI_KEY_FILE=str(work / "none"))
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/{'mcp' if options.native else 'call'}"
        self.body = json.dumps(NATIVE if options.native else CALL)
        self.script = work / "call.lua"
        self.script.write_text(f"wrk.method = 'POST'\nwrk.body = '{self.body}'\nwrk.headers['content-type'] = 'application/json'\n"
                               "wrk.headers['accept'] = 'application/json, text/event-stream'\n")
        command = [str(binary), "proxy", "--port", str(port), "--ati-dir", str(work), "--conf", str(work / "ati.toml")]
        self.pinned = ["taskset", "-c", PROXY_CORE] if options.workers == 1 else []
        super().__init__(name, command, port, work / "log")

    def start(self):
        log = open(self.log, "wb")
        self.process = subprocess.Popen([*self.pinned, *self.command], stdout=log, stderr=log, env=self.environment)
        wait_for(self.port)
        deadline = time.monotonic() + 60
        while True:
            headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
            try:
                said = urllib.request.urlopen(urllib.request.Request(self.url, self.body.encode(), headers), timeout=60).read()
                assert b"Echo: hello world" in said, said
                return
            except (OSError, AssertionError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def pids(self):
        return [str(self.process.pid)]

    def load(self, seconds, connections):
        return ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(self.script), self.url]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--http", action="store_true", help="a server behind a URL instead of a program")
    parser.add_argument("--native", action="store_true", help="ask at /mcp instead of /call")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="ati-bench-"))
    started = []
    try:
        upstream = free_port()
        if options.http:
            (work / "server.py").write_text(SERVER)
            server = ["taskset", "-c", LOAD_CORE, sys.executable, str(work / "server.py"), str(upstream)]
            started.append(subprocess.Popen(server))
            wait_for(upstream)
        made = [Calls("before", options.before, work / "before", options, upstream), Calls("after", options.after, work / "after", options, upstream)]
        for c in made:
            c.start()
            started.append(c.process)
        print("| callers | binary | CPU µs/call (min–max) | ratio, median (min–max) | calls/s | p99 µs |\n|---|---|---|---|---|---|")
        for callers in (1, 16):
            for c in made:  # warm up
                c.round(1, callers)
                c.rounds.clear()
            for n in range(options.rounds):
                for c in made if n % 2 == 0 else reversed(made):
                    c.round(options.seconds, callers)
            for c in made:
                ratios = sorted(a["cpu"] / b["cpu"] for a, b in zip(c.rounds, made[0].rounds))
                low, high = c.spread("cpu")
                print(f"| {callers} | {c.name} | {c.median('cpu'):.1f} ({low:.1f}–{high:.1f}) | {statistics.median(ratios):.2f} "
                      f"({ratios[0]:.2f}–{ratios[-1]:.2f}) | {c.median('rps'):,.0f} | {c.median('p99'):.0f} |", flush=True)
    finally:
        for process in started:
            process.kill()
            process.wait()
        shutil.rmtree(work, ignore_errors=True)


main()
