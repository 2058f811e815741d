#!/usr/bin/env python3
"""Tool calls, compared with the published crate agent-tools-interface, in interleaved rounds of one run, on loopback.

Both serve POST /call with an ES256 token, a scope, a rate limit and the audit on. What counts first is CPU time of the proxy process
per call. Then: ten thousand tools in a hundred manifests, and how long a command takes that does next to nothing.
"""

import argparse, json, os, resource, shutil, statistics, subprocess, sys, tempfile, time
from datetime import datetime, timezone
from pathlib import Path

from passthrough import LOAD_CORE, PROXY_CORE, ROOT, TARGET, Contender, free_port, machine, nginx, start, wait_for

PUBLISHED = Path(os.environ.get("ATI_PUBLISHED", Path.home() / ".cache" / "ati-bench" / "bin" / "ati"))
OURS = TARGET / "ati"


class Calls(Contender):
    def __init__(self, name, binary, work, upstream, tokens):
        self.work = work
        self.environment = dict(PATH=os.environ["PATH"], HOME=str(work), ATI_DIR=str(work), RUST_LOG="warn",
                                ATI_JWT_PUBLIC_KEY=str(tokens / "public.pem"), ATI_KEY_FILE=str(work / "none"))
        (work / "manifests").mkdir(parents=True)
        (work / "manifests" / "bench.toml").write_text(
            f'[provider]\nname = "bench"\ndescription = "bench"\nbase_url = "http://127.0.0.1:{upstream}"\nauth_type = "bearer"\n'
            'auth_key_name = "key"\n\n[[tools]]\nname = "bench_echo"\ndescription = "echo"\nendpoint = "/hello"\nmethod = "GET"\n'
            'scope = "tool:bench_echo"\n\n[tools.input_schema]\ntype = "object"\nrequired = ["q"]\n\n'
            '[tools.input_schema.properties.q]\ntype = "string"\n')
        (work / "credentials").write_text(json.dumps({"key": "upstream-key"}))
        (work / "credentials").chmod(0o600)
        token = (tokens / "token").read_text().strip()
        self.script = work / "call.lua"
        self.script.write_text(
            'wrk.method = "POST"\nwrk.path = "/call"\n'
            'wrk.body = \'{"tool_name":"bench_echo","args":{"q":"hello world"}}\'\n'
            f'wrk.headers["content-type"] = "application/json"\nwrk.headers["authorization"] = "Bearer {token}"\n')
        port = free_port()
        command = [str(binary), "proxy", "--port", str(port), "--ati-dir", str(work)]
        if binary == OURS:
            (work / "ati.toml").write_text("[server]\nworkers = 1\n")
            command += ["--conf", str(work / "ati.toml")]
        super().__init__(name, command, port, work / "log")

    def start(self):
        log = open(self.log, "wb")
        self.process = subprocess.Popen(["taskset", "-c", PROXY_CORE, *self.command], stdout=log, stderr=log, env=self.environment)
        wait_for(self.port)

    def load(self, seconds, connections):
        return ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "-s", str(self.script), f"http://127.0.0.1:{self.port}/call"]

    def audited(self):
        with open(self.work / "audit.jsonl", "rb") as file:
            return sum(1 for _ in file)


def issue(work):
    """A key pair and a token, made by the command line of ati; both servers accept them."""
    keys = subprocess.run([OURS, "token", "keygen"], capture_output=True, text=True, check=True).stdout
    private, public = keys.split("-----END PRIVATE KEY-----\n")
    (work / "private.pem").write_text(private + "-----END PRIVATE KEY-----\n")
    (work / "public.pem").write_text(public)
    sign(work)


def sign(work, *options):
    token = subprocess.run(
        [OURS, "token", "issue", "--key", str(work / "private.pem"), "--sub", "bench", "--scope", "tool:bench_echo tool:t:*",
         "--ttl", "7200", "--rate", "tool:bench_*=1000000/second", *options], capture_output=True, text=True, check=True).stdout
    (work / "token").write_text(token)


def many_tools(work, manifests, tools):
    (work / "manifests").mkdir(parents=True)
    for m in range(manifests):
        text = f'[provider]\nname = "p{m}"\ndescription = "Provider {m}"\nbase_url = "http://127.0.0.1:1"\nauth_type = "none"\n'
        for t in range(tools):
            text += (f'\n[[tools]]\nname = "p{m}:tool_{t}"\ndescription = "Does the thing number {t} that provider {m} is known for"\n'
                     f'endpoint = "/v1/things/{t}"\nmethod = "POST"\ntags = ["thing", "number{t}"]\n\n[tools.input_schema]\ntype = "object"\n'
                     'required = ["query"]\n\n[tools.input_schema.properties.query]\ntype = "string"\ndescription = "What to look for"\n\n'
                     '[tools.input_schema.properties.limit]\ntype = "integer"\ndefault = 10\nmaximum = 100\n')
        (work / "manifests" / f"p{m}.toml").write_text(text)


def timed(command, environment, runs):
    """Wall clock and CPU of a command, in milliseconds: medians."""
    walls, cpus = [], []
    for _ in range(runs):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(command, env=environment, capture_output=True)
        walls.append((time.perf_counter() - began) * 1e3)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpus.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)
        if done.returncode != 0:
            sys.exit(f"{command}: {done.stderr.decode()}")
    return statistics.median(walls), statistics.median(cpus)


def start_up(work, few, many, rounds):
    environment = lambda folder: dict(PATH=os.environ["PATH"], HOME=str(folder), ATI_DIR=str(folder), ATI_KEY_FILE=str(work / "none"))
    rows = []
    for label, folder, args, runs in [
        ("version", few, ["--version"], 5 * rounds),
        ("tool info, 10 tools", few, ["tool", "info", "p0:tool_7"], 5 * rounds),
        ("tool info, 10,000 tools", many, ["tool", "info", "p77:tool_7"], rounds),
        ("tool search, 10,000 tools", many, ["tool", "search", "thing number42"], rounds),
    ]:
        ours, theirs = [], []
        for binary, results in [(OURS, ours), (PUBLISHED, theirs)] * 2:
            results.append(timed([str(binary), *args], environment(folder), runs))
        best = lambda results: (min(r[0] for r in results), min(r[1] for r in results))
        rows.append((label, best(ours), best(theirs)))
    return rows


def serving(many, few):
    """Load time of a server, and what a lookup and a search cost it, with few tools and with many."""
    rows = []
    for label, folder in [("10 tools", few), ("10,000 tools", many)]:
        port, ready = free_port(), folder / "ready"
        ready.unlink(missing_ok=True)
        (folder / "ati.toml").write_text("[server]\nworkers = 1\n[log]\naccess = false\nsignatures = false\n")
        began = time.perf_counter()
        process = subprocess.Popen([OURS, "proxy", "--port", str(port), "--ati-dir", str(folder), "--conf", str(folder / "ati.toml"),
                                    "--ready-file", str(ready)], stderr=subprocess.DEVNULL)
        try:
            while not ready.exists():
                time.sleep(0.001)
            loaded = (time.perf_counter() - began) * 1e3
            contender = Contender("ati", [], port, None)
            contender.process = process
            costs = []
            for path in ("/tools/p0:tool_7", "/tools?search=thing+number7", "/health"):
                command = ["taskset", "-c", LOAD_CORE, "wrk", "-t1", "-c4", "-d2s", f"http://127.0.0.1:{port}{path}"]
                before = contender.cpu()
                out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                requests = int(out.split(" requests in")[0].split()[-1])
                costs.append((contender.cpu() - before) / requests * 1e6)
            rows.append((label, loaded, contender.resident(), *costs))
        finally:
            process.kill()
            process.wait()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--connections", type=int, default=32)
    args = parser.parse_args()
    if not PUBLISHED.exists():
        sys.exit(f"{PUBLISHED} is not there: bench/run installs it")
    work = Path(tempfile.mkdtemp(prefix="ati-bench-"))
    started = []
    try:
        issue(work)
        upstream = free_port()
        body = f'server {{ listen 127.0.0.1:{upstream}; location / {{ default_type application/json; return 200 \'{{"hello":"world","n":[1,2,3]}}\'; }} }}'
        started.append(start(nginx(work, "upstream", body), open(work / "upstream.log", "wb"), LOAD_CORE))
        wait_for(upstream)
        ours = Calls("ati", OURS, work / "ours", upstream, work)
        theirs = Calls("published", PUBLISHED, work / "theirs", upstream, work)
        made = [ours, theirs]
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
        ratio = statistics.median(a["cpu"] / b["cpu"] for a, b in zip(ours.rounds, theirs.rounds))
        lines = ["| | CPU µs/call (min–max) | calls/s | p50 µs | p99 µs | resident MiB |", "|---|---|---|---|---|---|"]
        for c in made:
            low, high = c.spread("cpu")
            lines.append(f"| {c.name} | {c.median('cpu'):.1f} ({low:.1f}–{high:.1f}) | {c.median('rps'):,.0f} | {c.median('p50'):.0f} | "
                         f"{c.median('p99'):.0f} | {c.resident():.0f} |")
        calls = "\n".join(lines) + f"\n\nati ÷ published, CPU per call, round by round: {ratio:.3f}"
        print(calls, flush=True)
        time.sleep(0.1)
        print("audited:", {c.name: c.audited() for c in made}, flush=True)
        for c in made:
            c.stop()
        few, many = work / "few", work / "many"
        many_tools(few, 1, 10)
        many_tools(many, 100, 100)
        lines = ["| | load ms | resident MiB | `GET /tools/{name}` µs | `GET /tools?search=` µs | `GET /health` µs |", "|---|---|---|---|---|---|"]
        for label, loaded, resident, *costs in serving(many, few):
            lines.append(f"| {label} | {loaded:.0f} | {resident:.0f} | " + " | ".join(f"{cost:.1f}" for cost in costs) + " |")
        served = "\n".join(lines)
        print(served, flush=True)
        lines = ["| | ati, wall ms | published, wall ms | ratio | ati, CPU ms | published, CPU ms |", "|---|---|---|---|---|---|"]
        for label, mine, other in start_up(work, few, many, 4):
            lines.append(f"| `{label.split(',')[0]}`{label[len(label.split(',')[0]):]} | {mine[0]:.1f} | {other[0]:.1f} | {mine[0] / other[0]:.2f} | {mine[1]:.1f} | {other[1]:.1f} |")
        commands = "\n".join(lines)
        print(commands, flush=True)
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
        shutil.rmtree(work, ignore_errors=True)
    version = subprocess.run([PUBLISHED, "--version"], capture_output=True, text=True).stdout.strip()
    now = datetime.now(timezone.utc)
    text = f"""# Tool calls, {now:%Y-%m-%d %H:%M} UTC

{machine()}, loopback. Compared with the published crate agent-tools-interface ({version}), each on one core, in {args.rounds} interleaved rounds of
{args.seconds} s, {args.connections} connections; nginx as upstream and wrk share the other core. Medians.

## POST /call

An ES256 token, a scope, a rate limit (1,000,000 a second, so that no call is refused), a required argument, a bearer credential, the audit on.

{calls}

## Serving many tools

CPU time of the server per request; load is from the start of the process to the ready file.

{served}

## Commands

Minimum of two medians each, taken in turn.

{commands}
"""
    results = ROOT / "bench" / "results"
    results.mkdir(exist_ok=True)
    path = results / f"calls-{now:%Y-%m-%d}.md"
    path.write_text(text)
    print(f"written: {path}")


if __name__ == "__main__":
    main()
