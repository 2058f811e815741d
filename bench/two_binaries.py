#!/usr/bin/env python3
"""POST /call of an HTTP tool: two ati binaries, in interleaved rounds of one run, on loopback.

    python3 bench/two_binaries.py OLD NEW [--rounds 9] [--seconds 3] [--connections 32] [--post] [--tls] [--instructions]

What counts is CPU time of the whole proxy process per call, and the ratio of it, round by round. --instructions asks callgrind for the
instructions per call instead, which don't depend on what else the machine does; its processor has no SHA instructions.
"""

import argparse, http.client, shutil, statistics, subprocess, sys, tempfile, time
from pathlib import Path

import calls
from passthrough import LOAD_CORE, free_port, nginx, start, wait_for

ANSWER = '{"hello":"world","n":[1,2,3]}'


class Binary(calls.Calls):
    def __init__(self, name, binary, work, upstream, tokens, tls, post):
        calls.OURS = binary
        super().__init__(name, binary, work, upstream, tokens)
        manifest = work / "manifests" / "bench.toml"
        text = manifest.read_text()
        text = text.replace('method = "GET"', 'method = "POST"') if post else text
        manifest.write_text(text.replace("http://127.0.0.1", "https://127.0.0.1") if tls else text)
        # The log of each request would be most of the difference.
        egress = f'[egress]\nca_file = "{tokens / "ca.pem"}"\n' if tls else ""
        (work / "ati.toml").write_text(f"[server]\nworkers = 1\n[log]\naccess = false\nsignatures = false\n{egress}")


def certificate(work):
    """An authority in ca.pem, and its certificate for 127.0.0.1 in leaf.pem."""
    openssl = lambda *args: subprocess.run(["openssl", *args], check=True, capture_output=True, cwd=work)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem")
    openssl("req", *key, "-subj", "/CN=bench", "-keyout", "leaf.key", "-out", "leaf.csr")
    (work / "leaf.ext").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    openssl("x509", "-req", "-in", "leaf.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "leaf.ext",
            "-out", "leaf.pem")


def instructions(contender, work, token, count):
    """Of all threads, per call, after some to warm up."""
    out = work / "callgrind"
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--instr-atstart=no", *contender.command]
    log = open(work / "valgrind.log", "wb")
    process = subprocess.Popen(command, env=contender.environment, stdout=log, stderr=log)
    try:
        wait_for(contender.port)
        client = http.client.HTTPConnection("127.0.0.1", contender.port, timeout=60)

        def call():
            client.request("POST", "/call", '{"tool_name":"bench_echo","args":{"q":"hello world"}}',
                           {"content-type": "application/json", "authorization": f"Bearer {token}"})
            answer = client.getresponse()
            body = answer.read()
            if answer.status != 200:
                sys.exit(f"{answer.status} {body}")

        for _ in range(100):
            call()
        control = lambda *args: subprocess.run(["callgrind_control", *args, str(process.pid)], check=True, capture_output=True)
        control("-i", "on")
        for _ in range(count):
            call()
        control("-d")
    finally:
        process.terminate()
        process.wait()
    dumps = sorted(work.glob("callgrind.*"))
    summary = [line for line in dumps[0].read_text().splitlines() if line.startswith(("summary:", "totals:"))]
    return int(summary[0].split()[1]) / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--tls", action="store_true", help="the upstream speaks HTTP/1.1 over TLS")
    parser.add_argument("--post", action="store_true", help="the tool's method is POST")
    parser.add_argument("--instructions", action="store_true", help="count them with callgrind")
    args = parser.parse_args()
    for binary in (args.old, args.new):
        if not binary.exists():
            sys.exit(f"{binary} is not there")
    work = Path(tempfile.mkdtemp(prefix="ati-bench-"))
    started = []
    try:
        calls.OURS = args.new
        calls.issue(work)
        upstream, tls = free_port(), ""
        if args.tls:
            certificate(work)
            tls = f"ssl_certificate {work}/leaf.pem; ssl_certificate_key {work}/leaf.key;"
        body = (f'server {{ listen 127.0.0.1:{upstream}{" ssl" if tls else ""}; {tls} keepalive_requests 1000000; '
                f'location / {{ default_type application/json; return 200 \'{ANSWER}\'; }} }}')
        started.append(start(nginx(work, "upstream", body), open(work / "upstream.log", "wb"), LOAD_CORE))
        wait_for(upstream)
        made = [Binary(name, binary.resolve(), work / name, upstream, work, args.tls, args.post)
                for name, binary in (("old", args.old), ("new", args.new))]
        if args.instructions:
            token = (work / "token").read_text().strip()
            old, new = (instructions(c, c.work, token, 1000) for c in made)
            print(f"thousand instructions per call: old {old / 1e3:.1f}, new {new / 1e3:.1f}, new ÷ old {new / old:.3f}")
            return
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
        old, new = made
        print("| | CPU µs/call (min–max) | calls/s | p50 µs | p99 µs | resident MiB |\n|---|---|---|---|---|---|")
        for c in made:
            low, high = c.spread("cpu")
            print(f"| {c.name} | {c.median('cpu'):.1f} ({low:.1f}–{high:.1f}) | {c.median('rps'):,.0f} | {c.median('p50'):.0f} | "
                  f"{c.median('p99'):.0f} | {c.resident():.0f} |")
        ratio = statistics.median(b["cpu"] / a["cpu"] for a, b in zip(old.rounds, new.rounds))
        print(f"\nnew ÷ old, CPU per call, round by round: {ratio:.3f}")
        time.sleep(0.1)
        print("audited:", {c.name: c.audited() for c in made})
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
