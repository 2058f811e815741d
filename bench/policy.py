#!/usr/bin/env python3
"""What the policy costs: `/call` of an HTTP tool without a policy, with one, and with one that the token narrows.

Interleaved rounds of one run on loopback, forwards and backwards in turn; what counts is CPU time of the proxy per call, and the ratio to
no policy. Every call is allowed, so that all do the same work behind that step.
Usage: policy.py [--ati BINARY] [--rounds N] [--seconds S]
"""

import argparse, shutil, tempfile
from datetime import datetime, timezone
from pathlib import Path

import calls
from passthrough import LOAD_CORE, ROOT, TARGET, free_port, machine, measure, nginx, start, wait_for

POLICY = """
[policy]
preset = "careful"
allowed_tools = ["gh", "shop:*", "bench_*"]
denied_commands = ["gh repo delete", "gh:secret_*", "kubectl", "shop:refund"]
effect_restrictions = { destructive = false, cost = "medium" }
require_confirmation = ["effects.filesystem.write"]
"""
DELEGATION = ["--allow-tool", "bench_*", "--deny-command", "bench_drop", "--restrict", "destructive=false", "--confirm", "effects.filesystem.write"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ati", type=Path, default=TARGET / "ati")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=32)
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="ati-bench-"))
    work.chmod(0o755)
    upstream = free_port()
    answer = '{"hello":"world"}'
    started = [start(nginx(work, "upstream", f"server {{ listen 127.0.0.1:{upstream}; return 200 '{answer}'; }}"), open(work / "up.log", "wb"), LOAD_CORE)]
    now = datetime.now(timezone.utc)
    try:
        wait_for(upstream)
        calls.OURS = args.ati
        calls.issue(work)
        tools = []
        for name, folder, policy, delegation in [("no policy", "none", "", []), ("a policy", "policy", POLICY, []),
                                                 ("a policy, narrowed by the token", "narrowed", POLICY, DELEGATION)]:
            calls.sign(work, *delegation)
            tool = calls.Calls(name, args.ati, work / folder, upstream, work)
            with open(tool.work / "ati.toml", "a") as conf:
                conf.write(policy)
            tools.append(tool)
        table = measure("call", tools, started, args)
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
        shutil.rmtree(work, ignore_errors=True)
    out = ROOT / "bench" / "results" / f"policy-{now:%Y-%m-%d}.md"
    out.write_text(f"# What the policy costs, {now:%Y-%m-%d %H:%M} UTC\n\n{machine()}, loopback.\n"
                   f"{args.rounds} interleaved rounds of {args.seconds} s, {args.connections} connections.\n\n{table}\n")
    print(out.read_text())


if __name__ == "__main__":
    main()
