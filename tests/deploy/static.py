#!/usr/bin/env python3
"""The shipped binary is linked statically, and serves from a chroot that contains nothing else.

Usage: static.py BINARY
"""

import hashlib
import hmac
import http.client
import http.server
import json
import os
import shutil
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time

SECRET = b"a secret of this test"


class Upstream(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        answer = json.dumps(
            {"host": self.headers["host"], "auth": self.headers["authorization"], "sha256": hashlib.sha256(body).hexdigest()}
        ).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class Names(socketserver.BaseRequestHandler):
    """Every name is 127.0.0.1."""

    def handle(self):
        query, sock = self.request
        end = query.index(b"\0", 12) + 5
        is_a = query[end - 4 : end - 2] == b"\0\1"
        answer = query[:2] + b"\x81\x80\0\1" + (b"\0\1" if is_a else b"\0\0") + b"\0\0\0\0" + query[12:end]
        if is_a:
            answer += b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton("127.0.0.1")
        sock.sendto(answer, self.client_address)


def serve(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def check(what, holds):
    print(("ok    " if holds else "FAIL  ") + what)
    if not holds:
        sys.exit(1)


def main(binary):
    dynamic = subprocess.run(["readelf", "--dynamic", binary], capture_output=True, text=True, check=True).stdout
    check("no shared library is needed", "(NEEDED)" not in dynamic)
    header = subprocess.run(["readelf", "--program-headers", binary], capture_output=True, text=True, check=True).stdout
    check("no interpreter is needed", "INTERP" not in header)

    upstream = serve(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream))
    names = serve(socketserver.UDPServer(("127.0.0.1", 0), Names))
    root = tempfile.mkdtemp(prefix="ati-static-")
    proxy = None
    try:
        shutil.copy(binary, f"{root}/ati")
        os.makedirs(f"{root}/data/manifests")
        with open(f"{root}/data/manifests/api.toml", "w") as file:
            file.write(
                f'[provider]\nname = "api"\nhandler = "passthrough"\nbase_url = "http://upstream.test:{upstream}"\n'
                'path_prefix = "/api"\nauth_type = "bearer"\nauth_key_name = "api_key"\n'
            )
        with open(f"{root}/data/ati.toml", "w") as file:
            file.write(f'[egress]\nnameservers = ["127.0.0.1:{names}"]\n')
        credentials = os.open(f"{root}/data/credentials", os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(credentials, "w") as file:
            json.dump({"api_key": "value", "sandbox_signing_shared_secret": SECRET.decode()}, file)
        args = "proxy --port 0 --ati-dir /data --conf /data/ati.toml --enable-passthrough --sig-verify-mode enforce"
        proxy = subprocess.Popen(
            ["/ati", *args.split(), "--ready-file", "/data/ready"],
            env={},
            stderr=subprocess.PIPE,
            preexec_fn=lambda: (os.chroot(root), os.chdir("/")),
        )
        deadline = time.monotonic() + 30
        while not os.path.exists(f"{root}/data/ready"):
            if proxy.poll() is not None or time.monotonic() > deadline:
                proxy.kill()
                print(proxy.stderr.read().decode())
                check("it starts in an empty chroot", False)
            time.sleep(0.02)
        check("it starts in an empty chroot", True)
        with open(f"{root}/data/ready") as file:
            edge = json.load(file)["edge"]

        connection = http.client.HTTPConnection(edge, timeout=30)
        connection.request("GET", "/health")
        answer = connection.getresponse()
        check("it is healthy", answer.status == 200 and json.load(answer)["status"] == "ok")

        body = os.urandom(1 << 20)
        at = str(int(time.time()))
        signature = hmac.new(SECRET, f"{at}.POST./api/x".encode(), hashlib.sha256).hexdigest()
        connection.request("POST", "/api/x", body, {"x-sandbox-signature": f"t={at},s={signature}"})
        answer = connection.getresponse()
        said = json.loads(answer.read())
        check("it resolves a name, adds the credential and passes the request on", answer.status == 200)
        check("whole", said["sha256"] == hashlib.sha256(body).hexdigest())
        check("with the credential", said["auth"] == "Bearer value" and said["host"] == f"upstream.test:{upstream}")

        proxy.send_signal(signal.SIGTERM)
        check("it ends when it is told to", proxy.wait(30) == 0)
    finally:
        if proxy and proxy.poll() is None:
            proxy.kill()
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1]))
