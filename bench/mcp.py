#!/usr/bin/env python3
"""Calls of a stdio MCP tool through pooled sessions, compared with connecting per call, in one run, on loopback.

The server is npm's server-everything, the tool its echo. The baseline does what a client without sessions does: start the server,
initialize, call, end it; it is a bare client, so it costs less than a whole proxy that did the same. What counts is the ratio of
calls per second, and that neither children nor descriptors of the proxy grow.
"""

import argparse, http.client, json, os, resource, subprocess, tempfile, threading, time
from datetime import datetime, timezone
from pathlib import Path

from passthrough import ROOT, TARGET, machine

OURS = TARGET / "ati"
SERVER = Path(os.environ.get("ATI_WILD_CACHE", Path.home() / ".cache" / "ati-wild")) / "mcp-servers/node_modules/.bin/mcp-server-everything"
BODY = json.dumps({"tool_name": "everything:echo", "args": {"message": "hi"}})


def connect_per_call(server):
    """One call, from the start of the server to its end."""
    child = subprocess.Popen([server], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def ask(id, method, params):
        child.stdin.write(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}) + "\n")
        child.stdin.flush()
        while True:
            answer = json.loads(child.stdout.readline())
            if answer.get("id") == id:
                return answer["result"]

    about = {"protocolVersion": "2025-03-26", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    ask(1, "initialize", about)
    child.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    result = ask(2, "tools/call", {"name": "echo", "arguments": {"message": "hi"}})
    assert result["content"][0]["text"] == "Echo: hi"
    child.stdin.close()
    child.kill()
    child.wait()


def calls(edge, count):
    connection = http.client.HTTPConnection(edge, timeout=60)
    for _ in range(count):
        connection.request("POST", "/call", BODY, {"content-type": "application/json"})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200 and json.loads(body)["result"] == "Echo: hi", body


def rate(count, work):
    started = time.perf_counter()
    work()
    return count / (time.perf_counter() - started)


def concurrently(edge, threads, each):
    failures = []

    def one():
        try:
            calls(edge, each)
        except Exception as error:  # whatever it is, the run is void
            failures.append(error)

    running = [threading.Thread(target=one) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]


def children(pid):
    found = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    found += int(file.read().rsplit(")", 1)[1].split()[1]) == pid
            except OSError:
                pass
    return found


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def cpu(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ati", default=OURS)
    parser.add_argument("--server", default=SERVER)
    parser.add_argument("--baseline-calls", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        (work / "manifests").mkdir()
        (work / "manifests" / "everything.toml").write_text(
            f'[provider]\nname = "everything"\nhandler = "mcp"\nmcp_command = "{options.server}"\n')
        environment = dict(PATH=os.environ["PATH"], HOME=str(work), ATI_DIR=str(work), RUST_LOG="warn", ATI_KEY_FILE=str(work / "none"))
        ready = work / "ready"
        with open(work / "log", "wb") as log:
            proxy = subprocess.Popen([options.ati, "proxy", "--port", "0", "--ready-file", ready], env=environment, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 60
            while True:
                try:
                    edge = json.loads(ready.read_text())["edge"]
                    calls(edge, 1)
                    break
                except (OSError, AssertionError, ValueError):
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.1)
            before = (children(proxy.pid), descriptors(proxy.pid))
            spent = cpu(proxy.pid)
            sequential = rate(1000, lambda: calls(edge, 1000))
            per_call = (cpu(proxy.pid) - spent) / 1000 * 1e6
            concurrent = rate(1000, lambda: concurrently(edge, 50, 20))
            time.sleep(1)
            after = (children(proxy.pid), descriptors(proxy.pid))
            # Measured again in the same round, so that both see the same machine.
            baseline = rate(options.baseline_calls, lambda: [connect_per_call(options.server) for _ in range(options.baseline_calls)])
        finally:
            proxy.terminate()
            proxy.wait(30)
    text = f"""# MCP sessions, {datetime.now(timezone.utc):%Y-%m-%d}

{machine()}

| | calls per second | ratio to connecting per call |
|---|---|---|
| connecting per call (bare client, {options.baseline_calls} calls) | {baseline:.1f} | 1 |
| 1,000 calls one after another | {sequential:.0f} | {sequential / baseline:.0f} |
| 50 callers, 20 calls each | {concurrent:.0f} | {concurrent / baseline:.0f} |

CPU time of the proxy per sequential call: {per_call:.0f} us (its clock ticks are coarse: 10 ms for all thousand). Children before and
after: {before[0]} and {after[0]}. Open descriptors before and after: {before[1]} and {after[1]}.
"""
    print(text)
    assert before[0] == after[0] == 1, (before, after)
    assert after[1] <= before[1] + 2, (before, after)
    out = ROOT / "bench" / "results" / f"mcp-{datetime.now(timezone.utc):%Y-%m-%d}.md"
    out.write_text(text)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    main()
