#!/usr/bin/env python3
"""A remote catalogue of skills through `ati`: what the first request costs, what later ones cost, and what the registry is asked.

A stand-in for Google Cloud Storage with --delay milliseconds per answer holds --skills skills, once with an index and once without.
Told for each: the first `/skillati/catalog` (cold), the median of later ones (warm), one skill cold and warm, requests to the registry
for each, and the catalogue while the registry is down. Ends with an error if an unchanged catalogue costs more than one request.
"""

import argparse, hashlib, http.client, http.server, json, os, signal, statistics, subprocess, sys, tempfile, threading, time, urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
INDEX = "_skillati/catalog.v1.json"


class Registry(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    objects, delay, down, count = {}, 0.0, False, 0
    lock = threading.Lock()

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        time.sleep(self.delay)
        self.answer(200, json.dumps({"access_token": "t", "expires_in": 3600}).encode())

    def do_GET(self):
        with Registry.lock:
            Registry.count += 1
        if Registry.down:
            self.close_connection = True
            return
        time.sleep(self.delay)
        url = urllib.parse.urlsplit(self.path)
        rest = url.path.removeprefix("/storage/v1/b/skills/o")
        if rest:
            content = self.objects.get(urllib.parse.unquote(rest[1:]))
            if content is None:
                return self.answer(404)
            tag = '"' + hashlib.sha256(content).hexdigest() + '"'
            if self.headers.get("if-none-match") == tag:
                return self.answer(304, ETag=tag)
            return self.answer(200, content, ETag=tag)
        query = dict(urllib.parse.parse_qsl(url.query))
        names = sorted(name for name in self.objects if name.startswith(query.get("prefix", "")))
        begin = int(query.get("pageToken", 0))
        page = {"items": [{"name": name, "etag": str(hash(self.objects[name]))} for name in names[begin:begin + 1000]]}
        if begin + 1000 < len(names):
            page["nextPageToken"] = str(begin + 1000)
        self.answer(200, json.dumps(page).encode())

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, *_):
        pass


def skills(count):
    objects, entries = {}, []
    for n in range(count):
        name = f"skill-{n:04}"
        text = f"---\nname: {name}\ndescription: What {name} is for, in one line of words\n---\n" + "Do it well.\n" * 50
        objects[f"{name}/SKILL.md"] = text.encode()
        objects[f"{name}/references/usage.md"] = b"Usage\n" * 20
        entries.append({"name": name, "description": f"What {name} is for, in one line of words",
                        "resources": ["references/usage.md"]})
    return objects, json.dumps({"version": 1, "skills": entries}).encode()


class Ati:
    def __init__(self, binary, registry, key, refresh):
        self.dir = tempfile.TemporaryDirectory(prefix="ati-bench-")
        home = Path(self.dir.name)
        account = {"client_email": "bench@x", "private_key": key, "token_uri": f"{registry}/token"}
        (home / "credentials").write_text(json.dumps({"gcp_credentials": json.dumps(account)}))
        (home / "credentials").chmod(0o600)
        (home / "ati.toml").write_text(f"[skill_registry]\nrefresh_seconds = {refresh}\n[log]\naccess = false\n")
        ready = home / "ready.json"
        env = {"PATH": os.environ["PATH"], "ATI_DIR": str(home), "ATI_SKILL_REGISTRY": f"gcs://skills?endpoint={registry}"}
        self.process = subprocess.Popen([binary, "proxy", "--port", "0", "--conf", home / "ati.toml", "--ready-file", ready],
                                        env=env, stderr=subprocess.DEVNULL)
        for _ in range(400):
            if ready.exists():
                break
            time.sleep(0.025)
        listeners = json.loads(ready.read_text())
        self.port = find_port(listeners)
        self.connection = http.client.HTTPConnection("127.0.0.1", self.port)

    def get(self, path):
        begun = time.perf_counter()
        self.connection.request("GET", path)
        response = self.connection.getresponse()
        body = response.read()
        return (time.perf_counter() - begun) * 1000, response, body

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self.dir.cleanup()


def find_port(value):
    """The first port in the ready file, whatever its layout."""
    if isinstance(value, dict):
        values = list(value.values())
    elif isinstance(value, list):
        values = value
    else:
        text = str(value)
        return int(text.rsplit(":", 1)[1]) if text.startswith("127.0.0.1:") else None
    return next((port for port in map(find_port, values) if port), None)


def measure(label, args, key, registry):
    ati = Ati(args.ati, registry, key, 1)
    try:
        def timed(path, rounds=1):
            before, times = Registry.count, []
            for _ in range(rounds):
                elapsed, response, body = ati.get(path)
                assert response.status == 200, (path, response.status, body[:200])
                times.append(elapsed)
            return statistics.median(times), Registry.count - before, response, body
        cold, requests, _, body = timed("/skillati/catalog")
        count = len(json.loads(body)["skills"])
        assert count == args.skills, count
        warm, warm_requests, _, _ = timed("/skillati/catalog", args.rounds)
        time.sleep(1.2)
        timed("/skillati/catalog")
        settled = -1
        while settled != Registry.count:
            settled = Registry.count
            time.sleep(0.3 + 10 * Registry.delay)
        unchanged = settled - requests - warm_requests
        one_cold, one_requests, _, _ = timed("/skillati/skill-0001")
        one_warm, _, _, _ = timed("/skillati/skill-0001", args.rounds)
        Registry.down = True
        time.sleep(1.2)
        for _ in range(100):
            down, _, response, _ = timed("/skillati/catalog", 5)
            if response.headers["x-ati-stale"]:
                break
            time.sleep(0.05)
        print(f"| {label} | {cold:.1f} ms, {requests} requests | {warm:.2f} ms, {warm_requests} requests | {unchanged} | "
              f"{one_cold:.1f} ms, {one_requests} | {one_warm:.2f} ms | {down:.2f} ms, {response.headers['x-ati-stale']} s old |")
        return unchanged
    finally:
        Registry.down, Registry.count = False, 0
        ati.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ati", default=str(TARGET / "ati"))
    parser.add_argument("--skills", type=int, default=1000)
    parser.add_argument("--delay", type=float, default=20, help="milliseconds that the registry takes for an answer")
    parser.add_argument("--rounds", type=int, default=200)
    args = parser.parse_args()
    key = subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
                         capture_output=True, check=True, text=True).stdout
    Registry.delay = args.delay / 1000
    server = Server(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    registry = f"http://127.0.0.1:{server.server_port}"
    print(f"{args.skills} skills, {args.delay:.0f} ms per answer of the registry, {args.ati}\n")
    print("| catalogue | cold | warm (median) | requests when unchanged | one skill, cold | one skill, warm | registry down |")
    print("|---|---|---|---|---|---|---|")
    objects, index = skills(args.skills)
    Registry.objects = {**objects, INDEX: index}
    unchanged = measure("with an index", args, key, registry)
    Registry.objects = objects
    measure("listed", args, key, registry)
    if unchanged != 1:
        sys.exit(f"an unchanged catalogue cost {unchanged} requests")


if __name__ == "__main__":
    main()
