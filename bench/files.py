#!/usr/bin/env python3
"""Uploads and downloads of one file through `ati`, next to `curl` doing the bare transfer.

Told for each way: MiB per second, and CPU milliseconds per MiB of the proxy and of the command (user and system, children included).
The ways: curl from the upstream to a file and curl to a server that keeps what it gets, `ati run` through the proxy with files as they
are, `ati run` with base64 in JSON (a forwarder hides X-Ati-Files), and curl against `/files`. Rounds are interleaved; medians are told.
Everything is on loopback, files are in --dir.
"""

import argparse, http.server, json, os, re, resource, shutil, socket, statistics, subprocess, sys, tempfile, threading, time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
PIECE = 1 << 20


class Files(http.server.BaseHTTPRequestHandler):
    """Sends the file, and keeps what it gets."""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    source = sink = None

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", str(self.source.stat().st_size))
        self.end_headers()
        with open(self.source, "rb") as file:
            self.connection.sendfile(file)

    def do_PUT(self):
        left = int(self.headers["content-length"])
        with open(self.sink, "wb") as file:
            while left:
                piece = self.rfile.read(min(left, PIECE))
                if not piece:
                    return
                file.write(piece)
                left -= len(piece)
        self.send_response(201)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def serve(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def hiding(port):
    """A forwarder that hides X-Ati-Files of the proxy, so that commands take it for an older one."""
    def pump(source, sink):
        try:
            while piece := source.recv(PIECE):
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def forward(caller):
        upstream = socket.create_connection(("127.0.0.1", port))
        threading.Thread(target=pump, args=(caller, upstream), daemon=True).start()
        try:
            caller.sendall(upstream.recv(4096).replace(b"x-ati-files", b"x-ati-fixes"))
        except OSError:
            return
        pump(upstream, caller)

    listener = socket.create_server(("127.0.0.1", 0))
    def accept():
        while True:
            threading.Thread(target=forward, args=(listener.accept()[0],), daemon=True).start()
    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()[1]


def cpu_of(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(words, proxy, env=None):
    """Seconds, CPU of the proxy, CPU of the command."""
    before, children = cpu_of(proxy), resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    done = subprocess.run([str(word) for word in words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    seconds = time.monotonic() - started
    if done.returncode != 0:
        sys.exit(f"{words}: {done.stderr.decode()[:500]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = after.ru_utime + after.ru_stime - children.ru_utime - children.ru_stime
    return seconds, cpu_of(proxy) - before, command, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ati", default=TARGET / "ati", type=Path)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", default=None, help="where the files are; needs four times their size")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="ati-bench-files-", dir=args.dir))
    proxy = None
    try:
        source, out, store = work / "source", work / "out", work / "store"
        with open(source, "wb") as file:
            for _ in range(args.mib):
                file.write(os.urandom(PIECE))
        (work / "ati/manifests").mkdir(parents=True)
        (work / "ati/manifests/files.toml").write_text(
            '[provider]\nname = "file_manager"\nhandler = "file_manager"\nupload_default_destination = "disk"\n'
            f'[provider.upload_destinations.disk]\nkind = "local"\ndirectory = "{store}"\n')
        Files.source, Files.sink = source, work / "sink"
        url = f"http://127.0.0.1:{serve(Files)}/file"
        ready = work / "ready"
        proxy = subprocess.Popen([args.ati, "proxy", "--port", "0", "--ati-dir", work / "ati", "--ready-file", ready],
                                 env={"PATH": os.environ["PATH"], "HOME": str(work), "TMPDIR": str(work), "RUST_LOG": "warn"},
                                 stderr=subprocess.DEVNULL)
        while not ready.exists() or not ready.read_text().strip():
            if proxy.poll() is not None:
                sys.exit("the proxy did not start")
            time.sleep(0.05)
        edge = json.loads(ready.read_text())["edge"]
        older = hiding(int(edge.rsplit(":", 1)[1]))
        env = lambda proxy_url: {"PATH": os.environ["PATH"], "HOME": str(work), "ATI_DIR": str(work / "cli"), "ATI_PROXY_URL": proxy_url}
        ati_up = [args.ati, "run", "file_manager:upload", "--path", source]
        ati_down = [args.ati, "run", "file_manager:download", "--url", url, "--out", out, "--max_bytes", args.mib * PIECE]
        ways = {
            "up: curl, bare": lambda: run(["curl", "-sfT", source, url], proxy.pid),
            "up: ati, as it is": lambda: run(ati_up, proxy.pid, env(f"http://{edge}")),
            "up: ati, JSON": lambda: run(ati_up, proxy.pid, env(f"http://127.0.0.1:{older}")),
            "up: curl PUT /files": lambda: run(["curl", "-sfT", source, f"http://{edge}/files"], proxy.pid),
            "down: curl, bare": lambda: run(["curl", "-sfo", out, url], proxy.pid),
            "down: ati, as it is": lambda: run(ati_down, proxy.pid, env(f"http://{edge}")),
            "down: ati, JSON": lambda: run(ati_down, proxy.pid, env(f"http://127.0.0.1:{older}")),
        }
        taken = {name: [] for name in ways}
        names = list(ways)
        for number in range(args.rounds):
            for name in names if number % 2 == 0 else reversed(names):
                seconds, of_proxy, of_command, stdout = ways[name]()
                taken[name].append((args.mib / seconds, of_proxy * 1000 / args.mib, of_command * 1000 / args.mib))
                if name.endswith("PUT /files"):
                    # The file would take its part of the quota for minutes.
                    subprocess.run(["curl", "-sfo", out, f"http://{edge}/files/{json.loads(stdout)['file']}"], check=True)
                if name.startswith("down") and out.stat().st_size != args.mib * PIECE:
                    sys.exit(f"{name}: the file isn't whole")
                shutil.rmtree(store, ignore_errors=True)
        peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{proxy.pid}/status").read_text())
        medians = {name: [round(statistics.median(column), 2) for column in zip(*rows)] for name, rows in taken.items()}
        if args.json:
            print(json.dumps({"mib": args.mib, "proxy_peak_mib": int(peak[1]) // 1024, "medians": medians}))
            return
        print(f"{args.mib} MiB, medians of {args.rounds} rounds; the proxy's peak: {int(peak[1]) // 1024} MiB")
        print(f"{'':24}{'MiB/s':>10}{'proxy ms/MiB':>14}{'command ms/MiB':>16}")
        for name, (rate, of_proxy, of_command) in medians.items():
            print(f"{name:24}{rate:>10}{of_proxy:>14}{of_command:>16}")
    finally:
        if proxy:
            proxy.kill()
            proxy.wait()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
