#!/usr/bin/env python3
"""What telemetry costs: a route and `/call` of an HTTP tool with no collector, with one that gets 1 % of the traces, and all of them.

Interleaved rounds of one run on loopback, forwards and backwards in turn; what counts is CPU time of the proxy per request, its threads
for the export included, and the ratio to no collector. The collector is nginx, which takes what comes.
Usage: otel.py [--ati BINARY] [--before BINARY] [--rounds N] [--seconds S]; --before is a binary without telemetry at all.
"""

import argparse, shutil, tempfile
from datetime import datetime, timezone
from pathlib import Path

import calls
from passthrough import LOAD_CORE, ROOT, TARGET, Contender, ati_proxy, free_port, machine, measure, nginx, start, wait_for


def variables(collector, ratio):
    if ratio is None:
        return {}
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector}", "OTEL_TRACES_SAMPLER": "traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": str(ratio)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ati", type=Path, default=TARGET / "ati")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=32)
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="ati-bench-"))
    work.chmod(0o755)
    upstream, collector = free_port(), free_port()
    answer = '{"hello":"world"}'
    started = [
        start(nginx(work, "upstream", f"server {{ listen 127.0.0.1:{upstream}; return 200 '{answer}'; }}"), open(work / "up.log", "wb"), LOAD_CORE),
        start(nginx(work, "collector", f"client_max_body_size 0; server {{ listen 127.0.0.1:{collector}; return 200; }}"),
              open(work / "collector.log", "wb"), LOAD_CORE),
    ]
    kinds = [("no collector", args.ati, None), ("1 % of traces", args.ati, 0.01), ("all traces", args.ati, 1)]
    if args.before:
        kinds.append(("binary without telemetry", args.before, None))
    now = datetime.now(timezone.utc)
    try:
        wait_for(upstream), wait_for(collector)
        calls.OURS = args.ati
        calls.issue(work)
        routes, tools = [], []
        for number, (name, binary, ratio) in enumerate(kinds):
            port = free_port()
            route = Contender(name, ati_proxy(work, f"route-{number}", upstream, port, False, False, binary), port, work / f"route-{number}.log")
            route.variables = variables(collector, ratio)
            routes.append(route)
            calls.OURS = binary
            tool = calls.Calls(name, binary, work / f"call-{number}", upstream, work)
            tool.environment.update(variables(collector, ratio))
            tools.append(tool)
        text = [f"# What telemetry costs, {now:%Y-%m-%d %H:%M} UTC\n", machine() + ", loopback.",
                f"{args.rounds} interleaved rounds of {args.seconds} s, {args.connections} connections, access logs off for routes.\n",
                "## A route\n", measure("route", routes, started, args) + "\n",
                "## `/call` of an HTTP tool\n", measure("call", tools, started, args)]
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
        shutil.rmtree(work, ignore_errors=True)
    out = ROOT / "bench" / "results" / f"otel-{now:%Y-%m-%d}.md"
    out.write_text("\n".join(str(part) for part in text) + "\n")
    print(out.read_text())


if __name__ == "__main__":
    main()
