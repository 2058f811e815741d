#!/usr/bin/env python3
"""GitHub's OpenAPI document (13 MB, 1,223 operations): import, start of a server with it, one command, memory.
Compared with the published crate agent-tools-interface, in turn, in one run."""

import argparse, os, re, shutil, statistics, subprocess, sys, tempfile, time, urllib.request
from datetime import datetime, timezone
from pathlib import Path

from calls import OURS, PUBLISHED, timed
from passthrough import ROOT, free_port, machine

DOCUMENT = Path.home() / ".cache" / "ati-wild" / "github" / "generated" / "api.github.com.json"


def environment(folder):
    return dict(PATH=os.environ["PATH"], HOME=str(folder), ATI_DIR=str(folder), ATI_KEY_FILE=str(folder / "none"), RUST_LOG="error")


def start(binary, folder):
    """Milliseconds until it answers, and its memory then."""
    port = free_port()
    began = time.perf_counter()
    process = subprocess.Popen([str(binary), "proxy", "--port", str(port), "--ati-dir", str(folder)], env=environment(folder), stderr=subprocess.DEVNULL)
    try:
        # A listener may accept before it answers.
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=20) as answer:
                    answer.read()
                break
            except OSError:
                time.sleep(0.002)
        took = (time.perf_counter() - began) * 1e3
        time.sleep(0.3)
        resident = int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process.pid}/status").read_text())[1]) / 1024
        return took, resident
    finally:
        process.kill()
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    if not DOCUMENT.exists():
        sys.exit(f"{DOCUMENT} is not there: tests/wild/run fetches it")
    work = Path(tempfile.mkdtemp(prefix="ati-bench-"))
    sides = {"ati": OURS, "published": PUBLISHED}
    taken = {name: {key: [] for key in ("import", "start", "resident", "info")} for name in sides}
    tools = {}
    try:
        for name in sides:
            (work / name).mkdir()
        for n in range(args.rounds):
            for name, binary in sides.items():
                folder = work / name
                run = lambda *words: timed([str(binary), *words], environment(folder), 1)[0]
                taken[name]["import"].append(run("provider", "import-openapi", str(DOCUMENT), "--name", "github"))
                took, resident = start(binary, folder)
                taken[name]["start"].append(took)
                taken[name]["resident"].append(resident)
                taken[name]["info"].append(run("tool", "info", "github:repos_get" if name == "ati" else "github:repos/get"))
                listed = subprocess.run([str(binary), "tool", "list"], env=environment(folder), capture_output=True, text=True).stdout
                tools[name] = listed.count('"tool":')
            print(f"round {n + 1}: " + ", ".join(f"{name} {taken[name]['import'][-1]:.0f} {taken[name]['start'][-1]:.0f}" for name in sides), flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    median = lambda name, key: statistics.median(taken[name][key])
    lines = ["| | import ms | start of a server ms | resident MiB | `tool info` ms | tools |", "|---|---|---|---|---|---|"]
    for name in sides:
        lines.append(f"| {name} | {median(name, 'import'):.0f} | {median(name, 'start'):.0f} | {median(name, 'resident'):.0f} | {median(name, 'info'):.0f} | {tools[name]} |")
    now = datetime.now(timezone.utc)
    version = subprocess.run([PUBLISHED, "--version"], capture_output=True, text=True).stdout.strip()
    table = "\n".join(lines)
    text = f"""# GitHub's OpenAPI document, {now:%Y-%m-%d %H:%M} UTC

{machine()}. {DOCUMENT.stat().st_size / 1e6:.0f} MB, from npm's @octokit/openapi. Compared with the published crate ({version}), {args.rounds} rounds in turn; medians of wall time.

{table}
"""
    print(text)
    path = ROOT / "bench" / "results" / f"openapi-{now:%Y-%m-%d}.md"
    path.write_text(text)
    print(f"written: {path}")


if __name__ == "__main__":
    main()
