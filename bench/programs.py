#!/usr/bin/env python3
"""Calls of /bin/true as a tool, compared with starting it directly from Rust, in one run, on loopback.

A call starts a supervisor, which starts the program: two processes for the one of the baseline (spawn_directly.rs). What counts is the
ratio of calls per second and of CPU time, that of all processes included, that memory, descriptors and children of the proxy don't
grow over 10,000 calls, and the 99th percentile of a caller of something else while 32 programs run, next to that of a quiet proxy.
"""

import argparse, http.client, json, os, resource, statistics, subprocess, tempfile, threading, time
from datetime import datetime, timezone
from pathlib import Path

from passthrough import ROOT, TARGET, machine

PROGRAM = "/bin/true"
RUNNING = 32


def call(connection, tool, words=()):
    body = json.dumps({"tool_name": tool, "args": list(words)})
    connection.request("POST", "/call", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, body
    return json.loads(body)["result"]


def calls(edge, each, threads):
    """Seconds of so many calls on each of so many connections."""
    failures = []

    def one():
        try:
            connection = http.client.HTTPConnection(edge, timeout=120)
            for _ in range(each):
                assert call(connection, "true") == ""
        except Exception as error:  # whatever it is, the run is void
            failures.append(error)

    begun = time.perf_counter()
    running = [threading.Thread(target=one) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]
    return time.perf_counter() - begun


def directly(baseline, each, threads):
    """Seconds and CPU seconds of as many programs, started directly."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = float(subprocess.run([baseline, PROGRAM, str(each), str(threads)], check=True, capture_output=True, text=True).stdout)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cpu(pid):
    """Of the process and of everything that it has waited for."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


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


def state(pid):
    """Children, descriptors and KiB of resident memory."""
    with open(f"/proc/{pid}/status") as file:
        memory = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
    return children(pid), len(os.listdir(f"/proc/{pid}/fd")), memory


def settled(pid, before):
    """The same once everything that ends has ended."""
    deadline = time.monotonic() + 30
    while True:
        now = state(pid)
        if (now[0] <= before[0] and now[1] <= before[1]) or time.monotonic() > deadline:
            return now
        time.sleep(0.1)


def percentile(edge, seconds):
    """Milliseconds that 99 of 100 requests to /health stay below."""
    connection = http.client.HTTPConnection(edge, timeout=60)
    took = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        connection.request("GET", "/health")
        connection.getresponse().read()
        took.append(time.perf_counter() - begun)
    return statistics.quantiles(took, n=100)[98] * 1e3


def with_programs(edge, seconds, work):
    """The same while programs run: as many as may, each of them for as long."""
    running = [threading.Thread(target=lambda: call(http.client.HTTPConnection(edge, timeout=120), "sleep", [str(seconds + 2)]))
               for _ in range(RUNNING)]
    for thread in running:
        thread.start()
    time.sleep(1)
    measured = percentile(edge, seconds)
    for thread in running:
        thread.join()
    return measured


def manifests(work):
    (work / "manifests").mkdir()
    for name, command in [("true", PROGRAM), ("sleep", "/bin/sleep")]:
        (work / "manifests" / f"{name}.toml").write_text(
            f'[provider]\nname = "{name}"\nhandler = "cli"\ncli_command = "{command}"\ncli_max_concurrent = {RUNNING}\n')


def start(ati, work):
    environment = dict(PATH=os.environ["PATH"], HOME=str(work), ATI_DIR=str(work), RUST_LOG="warn", ATI_KEY_FILE=str(work / "none"))
    ready = work / "ready"
    with open(work / "log", "wb") as log:
        proxy = subprocess.Popen([ati, "proxy", "--port", "0", "--ready-file", ready], env=environment, stdout=log, stderr=log)
    deadline = time.monotonic() + 60
    while True:
        try:
            return proxy, json.loads(ready.read_text())["edge"]
        except (OSError, ValueError):
            if proxy.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ati", default=TARGET / "ati")
    parser.add_argument("--baseline", default=TARGET / "examples" / "spawn_directly")
    parser.add_argument("--calls", type=int, default=1000, help="of each measurement")
    parser.add_argument("--many", type=int, default=10_000, help="over which memory must not grow")
    parser.add_argument("--seconds", type=int, default=5, help="of the 99th percentiles")
    parser.add_argument("--quick", action="store_true", help="print, and write nothing")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        manifests(work)
        proxy, edge = start(options.ati, work)
        try:
            calls(edge, 20, 8)  # what is made once is made
            for threads in [1, 8]:
                each = options.calls // threads
                count = each * threads
                spent = cpu(proxy.pid)
                ours = calls(edge, each, threads)
                ours_cpu = cpu(proxy.pid) - spent
                bare, bare_cpu = directly(options.baseline, each, threads)
                rows.append((threads, count, ours, ours_cpu, bare, bare_cpu))
            before = state(proxy.pid)
            calls(edge, options.many // 8, 8)
            after = settled(proxy.pid, before)
            quiet = percentile(edge, options.seconds)
            busy = with_programs(edge, options.seconds, work)
        finally:
            proxy.terminate()
            proxy.wait(30)
    lines = [
        f"| {threads} | {count / bare:.0f} | {count / ours:.0f} | {ours / bare:.2f} | {bare_cpu / count * 1e3:.2f} ms |"
        f" {ours_cpu / count * 1e3:.2f} ms | {ours_cpu / bare_cpu:.2f} |"
        for threads, count, ours, ours_cpu, bare, bare_cpu in rows
    ]
    table = "\n".join(lines)
    text = f"""# Programs as tools, {datetime.now(timezone.utc):%Y-%m-%d}

{machine()}. `{PROGRAM}`, {options.calls} calls each.

| at a time | directly, per second | `/call`, per second | time ÷ directly | CPU directly | CPU of a call, program included | CPU ÷ directly |
|---|---|---|---|---|---|---|
{table}

Over {options.many} more calls: children of the proxy {before[0]} before and {after[0]} after, descriptors {before[1]} and {after[1]},
resident memory {before[2]} KiB and {after[2]} KiB.

99th percentile of `GET /health`, one request after the other: {quiet:.2f} ms in quiet, {busy:.2f} ms while {RUNNING} programs run
({busy / quiet:.2f} times as much).
"""
    print(text)
    assert after[0] <= before[0], (before, after)
    assert after[1] <= before[1] + 2, (before, after)
    if not options.quick:
        (ROOT / "bench" / "results" / f"programs-{datetime.now(timezone.utc):%Y-%m-%d}.md").write_text(text)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
    main()
