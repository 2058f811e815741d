#!/usr/bin/env python3
"""Errors reach Sentry from a build with the feature, and only from tiers that send them. Usage: sentry.py BINARY"""

import http.server, json, os, pathlib, signal, subprocess, sys, tempfile, threading, time

SECRET = "planted-credential"


class Sentry(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    received = []
    arrived = threading.Event()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        Sentry.received.append((self.path, dict(self.headers), body))
        Sentry.arrived.set()
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


def serve(binary, dsn, tier):
    """A proxy whose reload fails, which is an error record; returns its log."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ati-sentry-"))
    (folder / "credentials").write_text(json.dumps({"key": SECRET}))
    (folder / "credentials").chmod(0o600)
    ready, log = folder / "ready", folder / "log"
    environment = dict(PATH=os.environ["PATH"], HOME=str(folder), ATI_DIR=str(folder), ATI_KEY_FILE=str(folder / "none"),
                       SENTRY_DSN=dsn, ENVIRONMENT_TIER=tier)
    command = [binary, "proxy", "--port", "0", "--ready-file", str(ready)]
    process = subprocess.Popen(command, env=environment, stderr=open(log, "wb"))
    wait("the proxy to serve", lambda: ready.exists())
    (folder / "credentials").write_text("{ no json " + SECRET)
    process.send_signal(signal.SIGHUP)
    wait("the reload to fail", lambda: "reload failed" in log.read_text())
    process.terminate()
    if process.wait(30) != 0:
        sys.exit(log.read_text())
    return log.read_text()


def wait(what, condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"never happened: {what}")
        time.sleep(0.02)


def main():
    binary = os.path.abspath(sys.argv[1])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sentry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    dsn = f"http://planted-public-key@127.0.0.1:{server.server_port}/42"

    log = serve(binary, dsn, "development")
    assert not Sentry.received, "a developer's machine sent an event"

    # The process waits for its last events before it ends.
    log += serve(binary, dsn, "production")
    assert len(Sentry.received) == 1, f"{len(Sentry.received)} events for one error"
    path, headers, body = Sentry.received[-1]
    headers = {name.lower(): value for name, value in headers.items()}
    assert path == "/api/42/envelope/", path
    assert "planted-public-key" in headers["x-sentry-auth"], headers
    events = [json.loads(line) for line in body.splitlines()]
    event = next((event for event in events if "message" in event), None)
    assert event, body
    assert "reload failed" in event["message"], event
    assert (event["environment"], event["server_name"], event.get("level", "error")) == ("production", "ati-proxy", "error"), event
    everything = body.decode() + log
    assert SECRET not in everything, "an event or the log tells a secret"
    assert "planted-public-key" not in log, "the log tells the DSN"

    log = serve(binary, "planted-nonsense", "production")
    assert "is no DSN of Sentry" in log and "planted-nonsense" not in log, log
    server.shutdown()
    print("sentry: events of errors arrive, from production, and hold no secret")


if __name__ == "__main__":
    main()
