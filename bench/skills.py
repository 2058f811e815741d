#!/usr/bin/env python3
"""Whether callers that list, resolve and read skills slow others' calls down.

A caller sends cheap calls (`POST /call`) one after the other: with nothing else going on, while two callers send `GET /tools` without a
pause (work of the same kind that has nothing to do with skills), and while two callers do what agents do with 500 skills: list, search,
resolve, read and bundle, under tokens that each open a part of them. The three take turns, round by round, because the machine's own
state changes meanwhile. Told are the first caller's median and 99th percentile of each, the ratios to quiet and to the busy listing,
and the CPU time of one request of each kind.
"""

import argparse, base64, hashlib, hmac, http.client, http.server, json, multiprocessing, os, socket, statistics, subprocess, tempfile, threading, time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
SECRET = "ab" * 32


class Upstream(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    disable_nagle_algorithm = True

    def do_GET(self):
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def token(scope):
    part = lambda data: base64.urlsafe_b64encode(data).rstrip(b"=")
    now = int(time.time())
    claims = {"sub": "bench", "aud": "ati-proxy", "iat": now, "exp": now + 3600, "scope": scope}
    text = part(b'{"alg":"HS256","typ":"JWT"}') + b"." + part(json.dumps(claims).encode())
    return (text + b"." + part(hmac.new(bytes.fromhex(SECRET), text, hashlib.sha256).digest())).decode()


def write(work, upstream, skills):
    (work / "manifests").mkdir()
    for n in range(20):
        tools = "".join(f'[[tools]]\nname = "p{n}:t{m}"\ndescription = "tool {m} of provider {n}"\n' for m in range(50))
        (work / "manifests" / f"p{n}.toml").write_text(f'[provider]\nname = "p{n}"\nbase_url = "http://127.0.0.1:{upstream}"\n{tools}')
    for n in range(skills):
        folder = work / "skills" / f"skill-{n}"
        (folder / "references").mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: skill-{n}\ndescription: How to do {n}\n---\n" + "A line of the text.\n" * 200)
        (folder / "skill.toml").write_text(f'[skill]\ntools = ["p{n % 20}:t{n % 50}"]\nproviders = ["p{(n + 7) % 20}"]\n')
        (folder / "references" / "more.md").write_text("More.\n" * 500)


class Client:
    def __init__(self, port, scope):
        self.connection, self.headers = http.client.HTTPConnection("127.0.0.1", port), {"Authorization": f"Bearer {token(scope)}"}

    def ask(self, method, path, body=None):
        headers = dict(self.headers, **({"Content-Type": "application/json"} if body else {}))
        self.connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = self.connection.getresponse()
        answer.read()
        assert answer.status == 200, (path, answer.status)


def skill_requests(n):
    return [("GET", "/skills", None), ("GET", "/skills?search=how%20to", None), ("GET", f"/skills/skill-{n}", None),
            ("GET", f"/skills/skill-{n}/bundle", None), ("POST", "/skills/resolve", {"scopes": [f"tool:p{n % 20}:*"], "include_content": True})]


def busy(port, requests, stop):
    client = Client(port, "tool:p1:* tool:p2:* skill:skill-*")
    while not stop.is_set():
        for request in requests:
            client.ask(*request)


def measure(port, seconds, load):
    # Processes, so that what they read doesn't take the measuring caller's own time.
    stop = multiprocessing.Event()
    callers = [multiprocessing.Process(target=busy, args=(port, requests, stop)) for requests in load]
    for caller in callers:
        caller.start()
    client, times, end = Client(port, "tool:*"), [], time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        client.ask("POST", "/call", {"tool_name": "p0:t0", "args": {}})
        times.append(time.perf_counter() - begun)
    stop.set()
    for caller in callers:
        caller.join()
    return times


def cpu(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--skills", type=int, default=500)
    parser.add_argument("--requests", type=int, default=300, help="requests of each kind for their CPU time")
    parser.add_argument("--ati", default=str(TARGET / "ati"))
    args = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        work, port = Path(folder), free_port()
        write(work, server.server_address[1], args.skills)
        log = open(work / "log", "w")
        edge = subprocess.Popen([args.ati, "proxy", "--port", str(port), "--ati-dir", folder, "--ready-file", folder + "/ready"], stderr=log,
                                env=dict(os.environ, ATI_DIR=folder, ATI_JWT_SECRET=SECRET, RUST_LOG="warn"))
        try:
            deadline = time.monotonic() + 60
            while not (work / "ready").exists():
                assert edge.poll() is None and time.monotonic() < deadline, (work / "log").read_text()
                time.sleep(0.02)
            skills = [skill_requests(1), skill_requests(2)]
            loads = {"quiet": [], "listing tools": [[("GET", "/tools", None)]] * 2, "skills": skills}
            times = {name: [] for name in loads}
            for n in range(args.rounds):
                for name in list(loads)[:: 1 if n % 2 else -1]:
                    taken = measure(port, args.seconds, loads[name])
                    times[name].append(taken)
            every = {name: sorted(t for round in rounds for t in round) for name, rounds in times.items()}
            p99 = lambda sample: sample[int(len(sample) * 0.99)]
            print("| while | median | 99th percentile | calls |\n|---|---|---|---|")
            for name, sample in every.items():
                print(f"| {name} | {statistics.median(sample) * 1e3:.2f} ms | {p99(sample) * 1e3:.2f} ms | {len(sample)} |")
            for other in ("quiet", "listing tools"):
                ratios = [statistics.median(a) / statistics.median(b) for a, b in zip(times["skills"], times[other])]
                tails = [p99(sorted(a)) / p99(sorted(b)) for a, b in zip(times["skills"], times[other])]
                print(f"\nskills ÷ {other}: median {statistics.median(ratios):.2f}, 99th percentile {statistics.median(tails):.2f}", end="")
            print("\n\n| request | CPU |\n|---|---|")
            client = Client(port, "tool:p1:* tool:p2:* skill:skill-*")
            kinds = skill_requests(1) + [("GET", "/tools", None)]
            for request in kinds:
                before = cpu(edge.pid)
                for _ in range(args.requests):
                    client.ask(*request)
                print(f"| `{request[0]} {request[1]}` | {(cpu(edge.pid) - before) / args.requests * 1e3:.2f} ms |")
        finally:
            edge.terminate()
            edge.wait()


main()
