#!/usr/bin/env python3
"""What the short way has to show, in one run, on loopback: passthrough next to HAProxy doing the same job and plain nginx, with
upstreams over TLS, with ten to ten thousand routes, with two thousand idle connections, and next to an older binary.

All are interleaved rounds, forwards and backwards in turn; what counts first is CPU time of the proxy per request, and ratios of it
round by round. Usage: short_way.py [--ati BINARY] [--before BINARY] [--rounds N] [--seconds S] [--only PART,PART]
"""

import argparse, re, resource, shutil, socket, subprocess, sys, tempfile, time
from datetime import datetime, timezone
from pathlib import Path

from passthrough import (LOAD_CORE, ROOT, TARGET, Contender, ati_proxy, free_port, haproxy_proxy, machine, measure, nginx, nginx_proxy,
                         signature, start, wait_for)

PARTS = ["plain", "logs", "tls", "routes", "idle", "before"]
IDLE = 2000


def certificates(work):
    """A CA and a server certificate for localhost."""
    openssl = lambda *args: subprocess.run(["openssl", *args], cwd=work, check=True, capture_output=True)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=bench")
    openssl("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (work / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "server.pem", "-days", "2",
            "-extfile", "names")
    for name in ("server.key", "ca.key"):
        (work / name).chmod(0o644)  # nginx may run as another user
    return work / "ca.pem"


def three(work, upstream, logs, binary, ca=None):
    """ati, HAProxy and nginx in front of the same upstream."""
    label = f"{'tls' if ca else 'plain'}{int(logs)}"
    ports = [free_port() for _ in range(3)]
    return [
        Contender("ati", ati_proxy(work, f"{label}-ati", upstream, ports[0], logs, False, binary, ca), ports[0], work / f"{label}-ati.log"),
        Contender("haproxy", haproxy_proxy(work, f"{label}-haproxy", upstream, ports[1], logs, ca), ports[1], work / f"{label}-haproxy.log"),
        Contender("nginx", nginx_proxy(work, f"{label}-nginx", upstream, ports[2], logs, ca), ports[2], work / f"{label}-nginx.log"),
    ]


def with_routes(work, upstream, binary):
    """ati with more and more routes; the one that is asked for is one of them."""
    made = []
    for count in (10, 100, 1000, 10000):
        port, name = free_port(), f"routes-{count}"
        command = ati_proxy(work, name, upstream, port, False, False, binary)
        for n in range(count - 1):
            (work / name / "manifests" / f"r{n}.toml").write_text(
                f'[provider]\nname = "r{n}"\nhandler = "passthrough"\nbase_url = "http://127.0.0.1:{upstream}"\n'
                f'path_prefix = "/r{n}/api"\nauth_type = "bearer"\nauth_key_name = "key"\n')
        made.append(Contender(f"{count:,} routes", command, port, work / f"{name}.log"))
    return made


def idle(work, upstream, binary):
    """Resident memory before and after so many connections, each of which made one request and waits."""
    lines = [f"| | resident MiB before | with {IDLE:,} idle connections | KiB per connection |", "|---|---|---|---|"]
    for c in three(work / "idle", upstream, False, binary):
        c.start()
        held = []
        try:
            time.sleep(0.5)
            before = c.resident()
            for n in range(IDLE):
                stream = socket.create_connection(("127.0.0.1", c.port), 10)
                stream.sendall(f"GET /svc/hello HTTP/1.1\r\nHost: h\r\nX-Sandbox-Signature: {signature('/svc/hello')}\r\n\r\n".encode())
                answer = stream.recv(65536)
                if not answer.startswith(b"HTTP/1.1 200"):
                    sys.exit(f"{c.name}: {answer!r}")
                held.append(stream)
            time.sleep(1)
            after = c.resident()
            lines.append(f"| {c.name} | {before:.1f} | {after:.1f} | {(after - before) * 1024 / IDLE:.1f} |")
        finally:
            for stream in held:
                stream.close()
            c.stop()
    text = "\n".join(lines)
    print(text, flush=True)
    return text


def before_and_after(work, upstream, started, args):
    """The same job for two binaries of ati: a route, a call of an HTTP tool, a call of an MCP server that is a program."""
    import calls
    texts = []
    pair = [("before", args.before), ("ati", args.ati)]
    made = []
    for name, binary in pair:
        port = free_port()
        made.append(Contender(name, ati_proxy(work, f"pair-{name}", upstream, port, False, False, binary), port, work / f"pair-{name}.log"))
    texts.append("### A route\n\n" + measure("route", made, started, args))
    calls.OURS = args.ati
    calls.issue(work)
    made = []
    for name, binary in pair:
        calls.OURS = binary  # so that it gets a conf file
        made.append(calls.Calls(name, binary, work / f"call-{name}", args.json, work))
    texts.append("### `POST /call` of an HTTP tool\n\n" + measure("/call", made, started, args))
    mcp = ROOT / "bench" / "mcp_calls.py"
    if mcp.exists():
        done = subprocess.run([sys.executable, mcp, args.before, args.ati, "--rounds", str(args.rounds), "--seconds", str(args.seconds)],
                              capture_output=True, text=True)
        print(done.stdout + done.stderr, flush=True)
        if done.returncode == 0:
            texts.append("### A call of a stdio MCP tool\n\n" + done.stdout.strip())
    return "\n\n".join(texts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ati", type=Path, default=TARGET / "ati")
    parser.add_argument("--before", type=Path, help="an older binary; without it, that part is left out")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}; the result is printed, not written")
    args = parser.parse_args()
    args.ati = args.ati.resolve()
    parts = args.only.split(",")
    resource.setrlimit(resource.RLIMIT_NOFILE, (20000, 20000))
    work = Path(tempfile.mkdtemp(prefix="ati-bench-"))
    work.chmod(0o755)  # nginx as upstream may run as another user
    (work / "idle").mkdir()
    started, texts = [], []
    try:
        plain, tls, args.json = free_port(), free_port(), free_port()
        ca = certificates(work)
        pace = work / "pace.lua"
        pace.write_text("function delay() return 1 end\n")  # milliseconds
        hello = 'location / { default_type text/plain; return 200 "hello from upstream\\n"; }'
        body = (f"server {{ listen 127.0.0.1:{plain}; {hello} }}\n"
                f"server {{ listen 127.0.0.1:{tls} ssl; ssl_certificate {work}/server.pem; ssl_certificate_key {work}/server.key; {hello} }}\n"
                f"server {{ listen 127.0.0.1:{args.json}; location / {{ default_type application/json; return 200 '{{\"hello\":\"world\",\"n\":[1,2,3]}}'; }} }}\n")
        started.append(start(nginx(work, "upstream", body), open(work / "upstream.log", "wb"), LOAD_CORE))
        for port in (plain, tls, args.json):
            wait_for(port)
        args.pace = pace
        if "plain" in parts:
            texts.append("## Access logs off\n\n" + measure("logs off", three(work, plain, False, args.ati), started, args))
        if "logs" in parts:
            texts.append("## Access logs on\n\n" + measure("logs on", three(work, plain, True, args.ati), started, args))
        if "tls" in parts:
            texts.append("## Upstreams over TLS, access logs off\n\nConnections are kept, so that handshakes are rare.\n\n"
                         + measure("TLS", three(work, tls, False, args.ati, ca), started, args))
        args.pace = None
        if "routes" in parts:
            texts.append("## From 10 to 10,000 routes\n\n" + measure("routes", with_routes(work, plain, args.ati), started, args))
        if "idle" in parts:
            texts.append(f"## {IDLE:,} idle connections\n\n" + idle(work, plain, args.ati))
        if "before" in parts and args.before:
            args.before = args.before.resolve()
            texts.append("## Next to the binary before it\n\n" + before_and_after(work, plain, started, args))
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
                process.wait()
        shutil.rmtree(work, ignore_errors=True)
    versions = [subprocess.run(c, capture_output=True, text=True) for c in (["haproxy", "-v"], ["nginx", "-v"])]
    versions = [re.split(r" - |$", (v.stdout + v.stderr).splitlines()[0])[0] for v in versions]
    now = datetime.now(timezone.utc)
    text = f"""# The short way, {now:%Y-%m-%d %H:%M} UTC

{machine()}, loopback, {args.connections} connections, {args.rounds} interleaved rounds, forwards and backwards in turn, of {args.seconds} s
each; medians, ratios round by round. Each proxy is one worker on one core; nginx as upstream and wrk share the other. {versions[0]}; {versions[1]}.
Paced: further {min(args.seconds, 2)} s a round, in which each connection waits for a millisecond after an answer, so that all proxies have about as much to do.

ati: enforce mode, a signed request, route, strip, bearer. haproxy: the same job. nginx: a reverse proxy that sets one header.

""" + "\n\n".join(texts) + "\n"
    if args.only != ",".join(PARTS):
        return
    path = ROOT / "bench" / "results" / f"short-way-{now:%Y-%m-%d}.md"
    path.write_text(text)
    print(f"written: {path}")


if __name__ == "__main__":
    main()
