#!/usr/bin/env python3
"""Passthrough compared with what could be used instead, in interleaved rounds of one run, on loopback.

Each contender is one worker on one core; the upstream and the load generator have the other. What counts first is CPU time of
the proxy process per request: it is what noise disturbs least.
"""

import argparse, base64, hashlib, hmac, json, os, re, shutil, signal, socket, statistics, subprocess, sys, tempfile, time
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
SECRET = "a-shared-secret-for-the-bench"
TICKS = os.sysconf("SC_CLK_TCK")
PROXY_CORE, LOAD_CORE = "0", "1"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port, interval=0.05):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 0.2).close()
            return
        except OSError:
            time.sleep(interval)
    sys.exit(f"nothing listens on {port}")


def signature(path):
    t = str(int(time.time()))
    mac = hmac.new(SECRET.encode(), f"{t}.GET.{path}".encode(), hashlib.sha256).hexdigest()
    return f"t={t},s={mac}"


def start(command, log, core=PROXY_CORE, variables={}):
    return subprocess.Popen(["taskset", "-c", core, *command], stdout=log, stderr=log, env={**os.environ, **variables})


def nginx(work, name, body):
    conf = work / f"{name}.conf"
    conf.write_text(
        f"worker_processes 1; daemon off; pid {work}/{name}.pid; error_log {work}/{name}.err;\n"
        "events { worker_connections 4096; }\n"
        f"http {{ access_log off; client_body_temp_path {work}; proxy_temp_path {work}; fastcgi_temp_path {work};\n"
        f"uwsgi_temp_path {work}; scgi_temp_path {work}; keepalive_requests 100000000;\n{body}\n}}\n"
    )
    return ["nginx", "-c", str(conf), "-p", str(work)]


class Contender:
    def __init__(self, name, command, port, log, path="/svc/hello"):
        self.name, self.command, self.port, self.log, self.path = name, command, port, log, path
        self.rounds = []
        self.variables = {}

    def start(self):
        self.process = start(self.command, open(self.log, "wb"), variables=self.variables)
        wait_for(self.port)

    def stop(self):
        # nginx ends its worker on SIGTERM; Pingora would drain for minutes.
        self.process.terminate() if self.name == "nginx" else self.process.kill()
        self.process.wait(10)

    def pids(self):
        """The process and its children: nginx works in one."""
        pid = str(self.process.pid)
        found = [pid]
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if (entry / "stat").read_text().rsplit(")", 1)[1].split()[1] == pid:
                        found.append(entry.name)
                except OSError:
                    pass
        return found

    def cpu(self):
        total = 0
        for pid in self.pids():
            # nanoseconds on a core, all threads: finer than the clock ticks of stat
            for task in Path(f"/proc/{pid}/task").iterdir():
                total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def resident(self):
        return sum(int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{p}/status").read_text())[1]) for p in self.pids()) / 1024

    def load(self, seconds, connections):
        path = self.path
        return ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency",
                "-H", f"X-Sandbox-Signature: {signature(path)}", f"http://127.0.0.1:{self.port}{path}"]

    def loaded(self, seconds, connections, *more):
        """One run of wrk: requests, and what they took."""
        wrk, *rest = self.load(seconds, connections)
        command = ["taskset", "-c", LOAD_CORE, wrk, *more, *rest]
        before = self.cpu()
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        used = self.cpu() - before
        if "Non-2xx" in out or "Socket errors" in out:
            sys.exit(f"{self.name}: {out}")
        requests = int(re.search(r"(\d+) requests in", out)[1])
        micro = lambda text: float(re.match(r"[\d.]+", text)[0]) * {"us": 1, "ms": 1e3, "s": 1e6}[re.search(r"[a-z]+", text)[0]]
        return {
            "rps": requests / seconds,
            "cpu": used / requests * 1e6,
            "p50": micro(re.search(r"(?m)^\s+50%\s+(\S+)", out)[1]),
            "p99": micro(re.search(r"(?m)^\s+99%\s+(\S+)", out)[1]),
        }

    def round(self, seconds, connections):
        self.rounds.append(self.loaded(seconds, connections))

    def paced(self, seconds, connections, script):
        """The same with a pause after each answer, so that all get about as many requests as the others: as many as possible is
        more for the faster one, up to what the core of the load can do, and then its latency is that core's."""
        self.rounds[-1] |= {f"paced_{key}": value for key, value in self.loaded(seconds, connections, "-s", str(script)).items()}

    def median(self, key):
        return statistics.median(r[key] for r in self.rounds)

    def spread(self, key):
        values = sorted(r[key] for r in self.rounds)
        return values[0], values[-1]


def ati_proxy(work, name, upstream, port, logs, scrub, binary=None, ca=None):
    """ati's command, with one route. With `ca`, the upstream speaks TLS."""
    ati = work / name
    (ati / "manifests").mkdir(parents=True)
    (ati / "credentials").write_text(json.dumps({"sandbox_signing_shared_secret": SECRET, "key": "upstream-key"}))
    (ati / "credentials").chmod(0o600)
    base = f"https://127.0.0.1:{upstream}" if ca else f"http://127.0.0.1:{upstream}"
    (ati / "manifests" / "svc.toml").write_text(
        f'[provider]\nname = "svc"\nhandler = "passthrough"\nbase_url = "{base}"\n'
        f'path_prefix = "/svc"\nauth_type = "bearer"\nauth_key_name = "key"\nscrub = {str(scrub).lower()}\n')
    egress = f'[egress]\nca_file = "{ca}"\n' if ca else ""
    (ati / "ati.toml").write_text(f"[server]\nworkers = 1\n[log]\naccess = {str(logs).lower()}\nsignatures = false\n{egress}")
    return [str(binary or TARGET / "ati"), "proxy", "--port", str(port), "--ati-dir", str(ati), "--conf",
            str(ati / "ati.toml"), "--enable-passthrough", "--sig-verify-mode", "enforce"]


def haproxy_proxy(work, name, upstream, port, logs, ca=None):
    """HAProxy's command: the same job as ati's."""
    key = base64.b64encode(SECRET.encode()).decode()
    tls = f" ssl verify required ca-file {ca} sni str(localhost) verifyhost localhost" if ca else ""
    conf = work / f"{name}.cfg"
    conf.write_text(f"""
global
    nbthread 1
    {"log stdout format raw local0" if logs else ""}
defaults
    mode http
    timeout client 60s
    timeout server 60s
    timeout connect 5s
    option http-keep-alive
    {"log global" if logs else ""}
    {"option httplog" if logs else ""}
frontend edge
    bind 127.0.0.1:{port}
    http-request set-var(txn.t) 'req.fhdr(x-sandbox-signature),field(1,","),field(2,"=")'
    http-request set-var(txn.s) 'req.fhdr(x-sandbox-signature),field(2,","),field(2,"=")'
    http-request set-var(txn.age) date,sub(txn.t)
    http-request deny deny_status 403 if {{ var(txn.age) -m int gt 60 }} || {{ var(txn.age),add(60) -m int lt 0 }}
    http-request set-var-fmt(txn.msg) "%[var(txn.t)].%[method].%[path]"
    http-request set-var(txn.mac) var(txn.msg),hmac(sha256,{key}),hex,lower
    http-request deny deny_status 403 unless {{ var(txn.mac),strcmp(txn.s) eq 0 }}
    http-request deny deny_status 404 unless {{ path_beg /svc/ }}
    http-request del-header x-sandbox- -m beg
    http-request replace-path /svc(/.*) \\1
    http-request set-header authorization "Bearer upstream-key"
    default_backend up
backend up
    http-reuse always
    server up 127.0.0.1:{upstream}{tls}
""")
    return ["haproxy", "-f", str(conf), "-db"]


def nginx_proxy(work, name, upstream, port, logs, ca=None):
    """nginx's command: a plain reverse proxy that sets one header."""
    log = f"access_log {work}/{name}.access.log combined;" if logs else ""
    tls = f"proxy_ssl_verify on; proxy_ssl_trusted_certificate {ca}; proxy_ssl_server_name on; proxy_ssl_name localhost;" if ca else ""
    return nginx(work, name, f"""
        upstream up {{ server 127.0.0.1:{upstream}; keepalive 256; keepalive_requests 100000000; }}
        server {{ listen 127.0.0.1:{port}; {log} {tls}
          location /svc/ {{ proxy_pass {"https" if ca else "http"}://up/; proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_set_header Authorization "Bearer upstream-key"; }} }}""")


def scrubbing(work, upstream):
    """The same bodies of 64 KiB with and without `scrub`."""
    made = []
    for name, scrub in (("ati", False), ("ati with scrub", True)):
        port, folder = free_port(), f"big-{int(scrub)}"
        command = ati_proxy(work, folder, upstream, port, False, scrub)
        made.append(Contender(name, command, port, work / f"{folder}.log", "/svc/big"))
    return made


def contenders(work, upstream, logs):
    ports = {name: free_port() for name in ("nginx", "haproxy", "bare", "ati", "off", "scrub")}
    number = int(logs)
    long = Contender("ati, short way off", ati_proxy(work, f"off{number}", upstream, ports["off"], logs, False), ports["off"], work / f"off{number}.log")
    long.variables = {"ATI_SHORT_WAY": "off"}
    made = [
        Contender("ati", ati_proxy(work, f"ati{number}", upstream, ports["ati"], logs, False), ports["ati"], work / f"ati{number}.log"),
        long,
        Contender("ati with scrub", ati_proxy(work, f"scrub{number}", upstream, ports["scrub"], logs, True), ports["scrub"], work / f"scrub{number}.log"),
        Contender("haproxy", haproxy_proxy(work, f"haproxy{number}", upstream, ports["haproxy"], logs), ports["haproxy"], work / f"haproxy{number}.log"),
        Contender("nginx", nginx_proxy(work, f"proxy{number}", upstream, ports["nginx"], logs), ports["nginx"], work / f"nginx{number}.log"),
    ]
    if not logs:
        bare = [str(TARGET / "examples" / "bare_pingora"), f"127.0.0.1:{ports['bare']}", f"127.0.0.1:{upstream}"]
        made.insert(1, Contender("bare pingora", bare, ports["bare"], work / "bare.log"))
    return made


def table(made):
    ati = next((c for c in made if c.name == "ati"), made[0])
    is_paced = "paced_p99" in ati.rounds[0]
    heads = ["", "CPU µs/request (min–max)", f"{ati.name} ÷ it", "requests/s", "p50 µs", "p99 µs"]
    heads += ["paced: requests/s", "p50 µs", "p99 µs"] if is_paced else []
    heads += ["resident MiB"]
    lines = [f"| {' | '.join(heads)} |".replace("|  |", "| |"), "|---" * len(heads) + "|"]
    for c in made:
        low, high = c.spread("cpu")
        # Round by round: what disturbs the machine disturbs neighbours alike.
        ratio = statistics.median(a["cpu"] / r["cpu"] for a, r in zip(ati.rounds, c.rounds))
        cells = [c.name, f"{c.median('cpu'):.2f} ({low:.2f}–{high:.2f})", f"{ratio:.2f}", f"{c.median('rps'):,.0f}",
                 f"{c.median('p50'):.0f}", f"{c.median('p99'):.0f}"]
        if is_paced:
            cells += [f"{c.median('paced_rps'):,.0f}", f"{c.median('paced_p50'):.0f}", f"{c.median('paced_p99'):.0f}"]
        lines.append(f"| {' | '.join([*cells, f'{c.resident():.0f}'])} |")
    return "\n".join(lines)


def measure(title, made, started, args):
    """Starts the proxies, lets them work in turn, and stops them. Returns the table."""
    for c in made:
        c.start()
        started.append(c.process)
    for c in made:  # warm up
        c.round(1, args.connections)
        c.rounds.clear()
    for n in range(args.rounds):
        # Forwards, then backwards: the proxy after the busiest one is at a disadvantage.
        for c in made if n % 2 == 0 else reversed(made):
            c.round(args.seconds, args.connections)
            if script := getattr(args, "pace", None):
                c.paced(min(args.seconds, 2), args.connections, script)
        print(f"{title}, round {n + 1}: " + ", ".join(f"{c.name} {c.rounds[-1]['cpu']:.2f}" for c in made), flush=True)
    text = table(made)
    print(text, flush=True)
    for c in made:
        c.stop()
    return text


def machine():
    model = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    return f"{os.cpu_count()} cores ({model[1] if model else 'unknown'})"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--only", help="comma-separated names; prints and writes nothing")
    args = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="ati-bench-"))
    work.chmod(0o755)  # nginx as upstream may run as another user
    started = []
    tables = []
    try:
        upstream = free_port()
        # JSON with escapes in it, as it is searched most slowly.
        item = json.dumps({"id": 1, "text": 'a "quoted" line\nand a/path', "url": "https://h/a%20b?c=d%2Fe"}) + ",\n"
        (work / "big").write_text((item * 700)[:64 << 10])
        body = (f'server {{ listen 127.0.0.1:{upstream}; location / {{ default_type text/plain; return 200 "hello from upstream\\n"; }} '
                f'location = /big {{ root {work}; default_type application/json; }} }}')
        up = start(nginx(work, "upstream", body), open(work / "upstream.log", "wb"), LOAD_CORE)
        started.append(up)
        wait_for(upstream)
        for title, logs, found in (("logs off", False, contenders), ("logs on", True, contenders), ("64 KiB", False, None)):
            made = found(work, upstream, logs) if found else scrubbing(work, upstream)
            made = [c for c in made if not args.only or c.name in args.only.split(",")]
            tables.append(measure(title, made, started, args))
            if args.only:
                return
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
        shutil.rmtree(work, ignore_errors=True)
    versions = [subprocess.run(c, capture_output=True, text=True) for c in (["haproxy", "-v"], ["nginx", "-v"])]
    versions = [(v.stdout + v.stderr).splitlines()[0] for v in versions]
    now = datetime.now(timezone.utc)
    text = f"""# Passthrough, {now:%Y-%m-%d %H:%M} UTC

{machine()}, loopback, {args.connections} connections, {args.rounds} interleaved rounds, forwards and backwards in turn,
of {args.seconds} s each; medians, ratios round by round. Each proxy is one worker on one core; nginx as upstream and wrk share the other. {versions[0]}; {versions[1]}.

ati: enforce mode, a signed request, route, strip, bearer. haproxy: the same job. nginx: a reverse proxy that sets one header.
bare pingora: forwards, and nothing else ([bare_pingora.rs](../bare_pingora.rs)). ati, short way off: `ATI_SHORT_WAY=off`. ati with scrub: `scrub = true`, so that bodies are
searched for the credential.

## Access logs off

{tables[0]}

## Access logs on

{tables[1]}

## Bodies of 64 KiB, access logs off

{tables[2]}
"""
    results = ROOT / "bench" / "results"
    results.mkdir(exist_ok=True)
    path = results / f"passthrough-{now:%Y-%m-%d}.md"
    path.write_text(text)
    print(f"written: {path}")


if __name__ == "__main__":
    main()
