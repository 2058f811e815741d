#!/usr/bin/env python3
"""Instructions that a request to a route takes, counted by callgrind: a limit that doesn't drift with the machine.

Two runs of the same proxy, with a different number of signed requests over one connection; the difference of their totals, divided
by that of the requests, is free of what a start costs. Only user mode is counted. callgrind's processor has no SHA instructions, so
about 4,000 of the result are SHA-256 in software, which real ones don't spend.

Usage: instructions.py BINARY [--limit N] [--requests N]
"""

import argparse, hashlib, hmac, json, os, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time
from pathlib import Path

SECRET = "a-shared-secret-for-the-bench"
ANSWER = b"HTTP/1.1 200 OK\r\nServer: counted\r\nContent-Type: text/plain\r\nContent-Length: 20\r\nConnection: keep-alive\r\n\r\nhello from upstream\n"
HERE = "127.0.0.1"


def upstream():
    """Answers each request, which has no body, with the same bytes."""
    listener = socket.create_server((HERE, 0))

    def serve(stream):
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        pending = b""
        while more := stream.recv(65536):
            pending += more
            while b"\r\n\r\n" in pending:
                pending = pending.split(b"\r\n\r\n", 1)[1]
                stream.sendall(ANSWER)

    def accept():
        while True:
            threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def prepare(folder, port):
    (folder / "manifests").mkdir()
    (folder / "credentials").write_text(json.dumps({"sandbox_signing_shared_secret": SECRET, "key": "upstream-key"}))
    (folder / "credentials").chmod(0o600)
    (folder / "manifests" / "svc.toml").write_text(
        f'[provider]\nname = "svc"\nhandler = "passthrough"\nbase_url = "http://{HERE}:{port}"\n'
        'path_prefix = "/svc"\nauth_type = "bearer"\nauth_key_name = "key"\n')
    (folder / "ati.toml").write_text("[server]\nworkers = 1\n[log]\naccess = false\nsignatures = false\n")


def request():
    now = str(int(time.time()))
    mac = hmac.new(SECRET.encode(), f"{now}.GET./svc/hello".encode(), hashlib.sha256).hexdigest()
    return (f"GET /svc/hello HTTP/1.1\r\nHost: {HERE}\r\nX-Sandbox-Signature: t={now},s={mac}\r\n\r\n").encode()


def ask(edge, count):
    host, port = edge.rsplit(":", 1)
    with socket.create_connection((host, int(port)), 60) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(count):
            stream.sendall(request())
            answer = b""
            while not answer.endswith(b"hello from upstream\n"):
                more = stream.recv(65536)
                if not more:
                    sys.exit(f"the connection ended: {answer!r}")
                answer += more
            if not answer.startswith(b"HTTP/1.1 200"):
                sys.exit(f"not served: {answer!r}")


def total(binary, folder, count):
    """Instructions of a whole run of the proxy with so many requests."""
    out, ready = folder / "callgrind.out", folder / "ready"
    for path in (out, ready):
        path.unlink(missing_ok=True)
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--log-file=/dev/null", binary, "proxy", "--port", "0",
               "--admin", f"{HERE}:0", "--ready-file", ready, "--conf", folder / "ati.toml", "--enable-passthrough",
               "--sig-verify-mode", "enforce"]
    environment = {name: os.environ[name] for name in ("PATH", "ATI_SHORT_WAY") if name in os.environ}
    environment |= {"HOME": str(folder), "ATI_DIR": str(folder), "ATI_KEY_FILE": str(folder / "none")}
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 120
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"ati doesn't start under valgrind:\n{(folder / 'log').read_text()}")
            time.sleep(0.05)
        time.sleep(0.2)  # the file is renamed to its place, so it is whole; what starts after it isn't counted per request
        ask(json.loads(ready.read_text())["edge"], count)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return int(re.search(r"(?m)^(?:summary|totals): (\d+)", out.read_text())[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--limit", type=int, help="fail above this many instructions")
    parser.add_argument("--requests", type=int, default=1000)
    args = parser.parse_args()
    if not shutil.which("valgrind"):
        sys.exit("valgrind is not installed")
    with tempfile.TemporaryDirectory(prefix="ati-instructions-") as folder:
        folder = Path(folder)
        prepare(folder, upstream())
        # The first requests open connections and grow buffers: both runs have them.
        few, many = (total(os.path.abspath(args.binary), folder, 200 + n) for n in (0, args.requests))
    each = (many - few) / args.requests
    print(f"{each:,.0f} instructions per request to a route" + (f", at most {args.limit:,}" if args.limit else ""))
    if args.limit and each > args.limit:
        sys.exit("a request takes more instructions than it may")


main()
