#!/usr/bin/env python3
"""What a call over /mcp costs next to the same call over /call: CPU time of the proxy per call, in interleaved rounds of one run, on
loopback. Both are of an HTTP tool, with an ES256 token, a scope, a rate limit and the audit on.

Usage: mcp_server.py [--ati BINARY] [--rounds N] [--seconds S]
"""

import argparse, json, shutil, statistics, tempfile
from pathlib import Path

import calls
from passthrough import LOAD_CORE, free_port, nginx, start, wait_for

MESSAGE = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "bench_echo", "arguments": {"q": "hello world"}}}
VERSION = "2026-07-28"
STATELESS = {
    **MESSAGE,
    "params": {**MESSAGE["params"], "_meta": {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}},
}


class OverMcp(calls.Calls):
    """The same proxy, asked at /mcp."""

    def __init__(self, name, message, headers, *args):
        super().__init__(name, *args)
        text = self.script.read_text().replace('"/call"', '"/mcp"')
        lines = [line for line in text.splitlines() if not line.startswith("wrk.body")]
        lines.append(f"wrk.body = '{json.dumps(message)}'")
        lines += [f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items()]
        self.script.write_text("\n".join(lines) + "\n")

    def load(self, seconds, connections):
        return [*super().load(seconds, connections)[:-1], f"http://127.0.0.1:{self.port}/mcp"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ati", default=str(calls.OURS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--connections", type=int, default=32)
    args = parser.parse_args()
    calls.OURS = Path(args.ati)
    work = Path(tempfile.mkdtemp(prefix="ati-bench-"))
    started = []
    try:
        calls.issue(work)
        upstream = free_port()
        body = f'server {{ listen 127.0.0.1:{upstream}; location / {{ default_type application/json; return 200 \'{{"hello":"world","n":[1,2,3]}}\'; }} }}'
        started.append(start(nginx(work, "upstream", body), open(work / "upstream.log", "wb"), LOAD_CORE))
        wait_for(upstream)
        headers = {"mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": "bench_echo"}
        made = [
            calls.Calls("/call", calls.OURS, work / "call", upstream, work),
            OverMcp("/mcp, handshake era", MESSAGE, {}, calls.OURS, work / "handshake", upstream, work),
            OverMcp("/mcp, 2026-07-28", STATELESS, headers, calls.OURS, work / "stateless", upstream, work),
        ]
        for c in made:
            c.start()
            started.append(c.process)
        for c in made:  # warm up
            c.round(1, args.connections)
            c.rounds.clear()
        for n in range(args.rounds):
            for c in made if n % 2 == 0 else reversed(made):
                c.round(args.seconds, args.connections)
            print(f"round {n + 1}: " + ", ".join(f"{c.name} {c.rounds[-1]['cpu']:.1f}" for c in made), flush=True)
        print("| | CPU µs/call (min–max) | ÷ /call | calls/s | p99 µs |\n|---|---|---|---|---|")
        for c in made:
            ratio = statistics.median(a["cpu"] / b["cpu"] for a, b in zip(c.rounds, made[0].rounds))
            low, high = c.spread("cpu")
            print(f"| {c.name} | {c.median('cpu'):.1f} ({low:.1f}–{high:.1f}) | {ratio:.2f} | {c.median('rps'):,.0f} | {c.median('p99'):.0f} |")
    finally:
        for process in started:
            process.kill()
            process.wait()
        shutil.rmtree(work, ignore_errors=True)


main()
