#!/usr/bin/env python3
"""How long others wait while two callers keep the edge busy with the worst arguments that a schema can have.

A third caller sends requests to a route and cheap calls, one after the other: with nothing else going on; while as many processes as
there are cores, which have nothing to do with the edge, count at the priority of the edge's threads for long work; and while two callers
send costly calls without a pause: one whose check is refused as too costly (9000 subschemas, 190,000 items), and one just below that
limit. With --answers the two call a tool with `extract = "$..a"` on an answer of 8 MB instead. The three take turns, round by round,
because the machine's own state changes meanwhile.

Told are the third caller's median and 99th percentile of each, and two ratios of the 99th percentiles: to quiet, and to the machine
being busy with something else. What the second one doesn't explain is the edge's own doing. On a machine with other work of its own
none of these mean much. The last lines do: the CPU time of a costly call by thread. What is on a worker is what others can wait for.
"""

import argparse, collections, http.client, http.server, json, multiprocessing, os, socket, statistics, subprocess, tempfile, time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"


class Upstream(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    big = json.dumps({"rows": [{"b": {"c": [1, 2, 3]}}] * 300_000}).encode()

    def do_GET(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        body = self.big if self.path.startswith("/big") else b"{}"
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def manifests(work, upstream):
    (work / "manifests").mkdir()
    base = f'base_url = "http://127.0.0.1:{upstream}"\n'
    checking = lambda name, parts: (
        f'\n[[tools]]\nname = "{name}"\nmethod = "POST"\n[tools.input_schema]\ntype = "object"\n[tools.input_schema.properties.l]\n'
        f'type = "array"\nitems = {{ allOf = [{"{ not = { const = 0 } }," * parts}] }}\n')
    (work / "manifests" / "t.toml").write_text(
        f'[provider]\nname = "t"\n{base}\n[[tools]]\nname = "t:cheap"\n[[tools]]\nname = "t:big"\nendpoint = "/big"\n'
        'response = { extract = "$..a" }\n' + checking("t:refused", 9000) + checking("t:checked", 20))
    (work / "manifests" / "r.toml").write_text(f'[provider]\nname = "r"\nhandler = "passthrough"\npath_prefix = "/r"\n{base}')


def call(connection, tool, args):
    body = json.dumps({"tool_name": tool, "args": args})
    connection.request("POST", "/call", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def measure(port, seconds):
    """Seconds of each request of the third caller: to the route, and calls."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    routes, calls = [], []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        connection.request("GET", "/r/x")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200
        routes.append(time.perf_counter() - began)
        began = time.perf_counter()
        assert call(connection, "t:cheap", {"q": "a"}) == 200
        calls.append(time.perf_counter() - began)
    return routes, calls


def p99(times):
    return sorted(times)[int(len(times) * 0.99)]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", default=TARGET / "ati")
    parser.add_argument("--seconds", type=float, default=4, help="of each of the three, in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--answers", action="store_true")
    options = parser.parse_args()
    # In processes of their own: one interpreter runs one thread at a time.
    upstream = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    multiprocessing.Process(target=upstream.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        manifests(work, upstream.server_port)
        port = free_port()
        environment = dict(PATH=os.environ["PATH"], HOME=name, ATI_DIR=name, RUST_LOG="warn")
        command = [str(options.binary), "proxy", "--port", str(port), "--ati-dir", name, "--enable-passthrough"]
        edge = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            run(port, edge.pid, options)
        finally:
            edge.terminate()
            edge.wait()


def disturb(port, tool, args, stop, done):
    # Callers are on other machines: what they do themselves must not take the edge's time.
    os.nice(19)
    body = json.dumps({"tool_name": tool, "args": args})
    connection = http.client.HTTPConnection("127.0.0.1", port)
    outcomes = {}
    while not stop.is_set():
        connection.request("POST", "/call", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        outcomes[tool, answer.status] = outcomes.get((tool, answer.status), 0) + 1
    done.put(outcomes)


def count(stop, done):
    os.nice(10)
    n = 0
    while not stop.is_set():
        for _ in range(100_000):
            n += 1
    done.put({})


def measure_with(port, seconds, target, arguments):
    """Measures while a process for each of the arguments runs `target`."""
    stop, done = multiprocessing.Event(), multiprocessing.SimpleQueue()
    others = [multiprocessing.Process(target=target, args=(*one, stop, done), daemon=True) for one in arguments]
    for other in others:
        other.start()
    time.sleep(0.5)
    measured = measure(port, seconds)
    stop.set()
    outcomes = collections.Counter()
    for other in others:
        outcomes.update(done.get())
        other.join(120)
    return measured, outcomes


def cpu_by_thread(pid):
    """Nanoseconds, by the threads' names without their numbers."""
    used = collections.Counter()
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = (task / "comm").read_text().strip().rstrip("-0123456789")
            used[name] += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            pass
    return used


def tell_cpu(port, pid, tool, args, times=8):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    call(connection, tool, args)
    before = cpu_by_thread(pid)
    for _ in range(times):
        call(connection, tool, args)
    used = cpu_by_thread(pid)
    used.subtract(before)
    shares = [f"{name} {ns / times / 1e6:.2f} ms" for name, ns in used.most_common() if ns / times > 50_000]
    print(f"CPU time of a call of {tool}: {', '.join(shares)}")


def run(port, pid, options):
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            time.sleep(0.05)
    measure(port, 1)
    if options.answers:
        costly = [("t:big", {}), ("t:big", {})]
    else:
        costly = [("t:refused", {"l": ["y"] * 190_000}), ("t:checked", {"l": ["y"] * 190_000})]
    cores = os.cpu_count() or 1
    quiet, busy, disturbed = ([], []), ([], []), ([], [])
    outcomes = collections.Counter()
    for _ in range(options.rounds):
        add(quiet, measure(port, options.seconds))
        add(busy, measure_with(port, options.seconds, count, [()] * cores)[0])
        measured, done = measure_with(port, options.seconds, disturb, [(port, *one) for one in costly])
        add(disturbed, measured)
        outcomes.update(done)
    ms = lambda seconds: f"{seconds * 1000:.2f} ms"
    told = lambda times: f"median {ms(statistics.median(times))}, p99 {ms(p99(times))}, longest {ms(max(times))}"
    for what, alone, counting, after in zip(["route", "call"], quiet, busy, disturbed):
        print(f"{what}: quiet {told(alone)}\n  machine busy {told(counting)}\n  costly calls {told(after)}\n"
              f"  p99 ratio to quiet {p99(after) / p99(alone):.2f} (a busy machine alone {p99(counting) / p99(alone):.2f}), "
              f"to a busy machine {p99(after) / p99(counting):.2f}")
    print("costly calls meanwhile:", ", ".join(f"{tool} {status}: {n}" for (tool, status), n in outcomes.items()))
    for tool, args in dict(costly).items():
        tell_cpu(port, pid, tool, args)


def add(all, measured):
    for times, more in zip(all, measured):
        times.extend(more)


if __name__ == "__main__":
    main()
