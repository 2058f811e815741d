#!/usr/bin/env python3
"""The call log's part of a request: the same load on one proxy with rows in a database and on one without, in interleaved rounds of one run.

A steady rate of 100,000 calls a minute (--rate) of POST /call, on loopback, with PostgreSQL from Debian in a folder of its own, or with
SQLite (--engine). Measured for each: the median and the 99th percentile of the time of a call, and the CPU time of the proxy process
for a call, the task that writes rows included. Figures of a debug binary are no measure. At the end the rows are counted: as many as calls
were answered, and none dropped.

    bench/call_log.py [--binary target/release/ati] [--seconds 20] [--rounds 3] [--rate 100000] [--engine postgres|sqlite]
"""

import argparse, http.client, http.server, json, multiprocessing, os, shutil, socket, sqlite3, subprocess, sys, tempfile, threading, time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
THREADS = 8


class Upstream(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body in one packet: without that each answer waits for an acknowledgement.
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def do_GET(self):
        body = b'{"hello":"world"}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, *_):
        pass


class Postgres:
    def __init__(self, folder):
        self.folder = folder
        versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
        if not versions:
            sys.exit("PostgreSQL isn't installed: .ci/deps test installs it")
        self.bin = versions[-1].parent
        self.user = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups", "--"] if os.geteuid() == 0 else []
        if self.user:
            shutil.chown(folder, "postgres")
        self.run("initdb", "-D", f"{folder}/data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        self.server = subprocess.Popen([*self.user, self.bin / "postgres", "-D", f"{folder}/data", "-k", folder, "-c", "listen_addresses="],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
        while subprocess.run([self.bin / "pg_isready", "-q", "-h", folder]).returncode:
            time.sleep(0.1)
        self.url = f"postgres://postgres@localhost/postgres?host={folder}"

    def run(self, program, *words):
        subprocess.run([*self.user, self.bin / program, *words], check=True, stdout=subprocess.DEVNULL, cwd="/")

    def rows(self):
        count = subprocess.run([self.bin / "psql", "-qXtA", self.url, "-c", "select count(*) from ati_call_log"], capture_output=True, text=True)
        return int(count.stdout)

    def stop(self):
        self.server.terminate()
        self.server.wait()


class Sqlite:
    def __init__(self, folder):
        self.file = f"{folder}/store.db"
        self.url = f"sqlite:{self.file}"

    def rows(self):
        return sqlite3.connect(self.file).execute("select count(*) from ati_call_log").fetchone()[0]

    def stop(self):
        pass


class Proxy:
    def __init__(self, binary, work, upstream, database):
        work.mkdir()
        (work / "manifests").mkdir()
        (work / "manifests" / "bench.toml").write_text(
            f'[provider]\nname = "bench"\nbase_url = "http://127.0.0.1:{upstream}"\n\n[[tools]]\nname = "bench_echo"\nendpoint = "/hello"\n')
        (work / "ati.toml").write_text("[server]\nworkers = 1\n")
        environment = dict(PATH=os.environ["PATH"], HOME=str(work), ATI_DIR=str(work), RUST_LOG="warn", ATI_KEY_FILE=str(work / "none"))
        command = [binary, "proxy", "--port", "0", "--admin", "127.0.0.1:0", "--conf", work / "ati.toml", "--ready-file", work / "ready"]
        if database:
            environment["ATI_DB_URL"] = database.url
            command.append("--migrate")
        self.log = open(work / "log", "wb")
        self.process = subprocess.Popen(command, env=environment, stdout=self.log, stderr=self.log)
        while not (work / "ready").exists():
            if self.process.poll() is not None:
                sys.exit((work / "log").read_text())
            time.sleep(0.05)
        ready = json.loads((work / "ready").read_text())
        self.port, self.admin = (int(ready[name].rsplit(":", 1)[1]) for name in ("edge", "admin"))

    def cpu(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def metric(self, name):
        connection = http.client.HTTPConnection("127.0.0.1", self.admin)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        return next((float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + " ")), 0.0)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def load(proxy, seconds, rate, times):
    """Callers with connections of their own, each with its part of the rate. A call that comes late isn't made up for."""
    body = json.dumps({"tool_name": "bench_echo", "args": {"q": "hello world", "api_key": "secret"}}).encode()
    request = b"POST /call HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
    end = time.monotonic() + seconds

    def caller(index):
        stream = socket.create_connection(("127.0.0.1", proxy.port))
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answers = stream.makefile("rb")
        pause, due, mine = THREADS * 60 / rate, time.monotonic() + index * 60 / rate, []
        while (now := time.monotonic()) < end:
            if due > now:
                time.sleep(due - now)
            due = max(due + pause, now)
            start = time.perf_counter()
            stream.sendall(request)
            if b"200" not in answers.readline():
                sys.exit("a call failed")
            length = 0
            while (line := answers.readline()) not in (b"\r\n", b""):
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            answers.read(length)
            mine.append(time.perf_counter() - start)
        times.extend(mine)

    threads = [threading.Thread(target=caller, args=(index,)) for index in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--binary", default=ROOT / "target/release/ati", type=Path)
    options.add_argument("--seconds", default=20, type=float, help="of each round")
    options.add_argument("--rounds", default=3, type=int)
    options.add_argument("--rate", default=100_000, type=float, help="calls a minute")
    options.add_argument("--engine", default="postgres", choices=["postgres", "sqlite"])
    options = options.parse_args()
    work = Path(tempfile.mkdtemp(prefix="ati-call-log-"))
    work.chmod(0o755)
    (work / "database").mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    server.daemon_threads = True
    # In a process of its own: its work must not delay the callers.
    upstream = multiprocessing.get_context("fork").Process(target=server.serve_forever, daemon=True)
    upstream.start()
    database = (Postgres if options.engine == "postgres" else Sqlite)(str(work / "database"))
    proxies = {}
    try:
        for name in ("off", "on"):
            proxies[name] = Proxy(options.binary, work / name, server.server_address[1], database if name == "on" else None)
        times, cpu, took = {"off": [], "on": []}, {"off": 0.0, "on": 0.0}, {"off": 0.0, "on": 0.0}
        for _ in range(options.rounds):
            for name, proxy in proxies.items():
                before, began = proxy.cpu(), time.monotonic()
                load(proxy, options.seconds, options.rate, times[name])
                took[name] += time.monotonic() - began
                if name == "on":
                    while proxy.metric("ati_call_log_waiting_rows"):
                        time.sleep(0.05)
                cpu[name] += proxy.cpu() - before
        found = {}
        for name in proxies:
            ordered = sorted(times[name])
            found[name] = dict(calls=len(ordered), calls_a_minute=round(len(ordered) / took[name] * 60),
                               p50_ms=ordered[len(ordered) // 2] * 1000, p99_ms=ordered[len(ordered) * 99 // 100] * 1000,
                               cpu_us_a_call=cpu[name] / len(ordered) * 1e6)
        dropped, rows = proxies["on"].metric("ati_call_log_dropped_total"), database.rows()
        ratios = {key: round(found["on"][key] / found["off"][key], 3) for key in ("p50_ms", "p99_ms", "cpu_us_a_call")}
        print(json.dumps(dict(engine=options.engine, binary=str(options.binary), **found, rows=rows, dropped=dropped, on_over_off=ratios), indent=2))
        if rows != len(times["on"]) or dropped:
            sys.exit("rows are missing")
    finally:
        for proxy in proxies.values():
            proxy.stop()
        database.stop()
        upstream.terminate()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
