#!/usr/bin/env python3
"""The work that a profile is made from: what an edge does most, in fixed numbers, on loopback.

Routes to upstreams over HTTP and TLS, with access logs and without; tools behind /call and /mcp, over HTTP and in a program that
speaks MCP; requests that Pingora's proxy serves; refusals. The binary is one that counts, made by deploy/profile. It may be any other,
too: each answer is checked.

Usage: train.py BINARY [--rounds N]
"""

import argparse, asyncio, hashlib, hmac, json, os, signal, ssl, subprocess, sys, tempfile, time
from pathlib import Path

HERE = "127.0.0.1"
SECRET = "a-shared-secret-of-the-training"
CALLERS = 16
MCP_SERVER = r'''
import json, sys
for line in sys.stdin.buffer:
    message = json.loads(line)
    method, id = message.get("method"), message.get("id")
    if id is None:
        continue
    said = {"jsonrpc": "2.0", "id": id}
    if method == "initialize":
        info = {"name": "training", "version": "1"}
        said["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
        said["result"] = {"tools": [{"name": "echo", "description": "echo", "inputSchema": schema}]}
    elif method == "tools/call":
        said["result"] = {"content": [{"type": "text", "text": "Echo: " + message["params"]["arguments"]["message"]}]}
    else:
        said["error"] = {"code": -32601, "message": "no"}
    sys.stdout.buffer.write(json.dumps(said).encode() + b"\n")
    sys.stdout.buffer.flush()
'''


async def read_message(reader):
    """A head and its body, of a request or of an answer. None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    if fields.get(b"transfer-encoding") == b"chunked":
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
        return head, body
    return head, await reader.readexactly(int(fields.get(b"content-length", 0)))


HEAD = b"HTTP/1.1 200 OK\r\nServer: training\r\nDate: Wed, 18 Nov 2026 12:00:00 GMT\r\nContent-Type: application/json\r\nX-Request-Id: up-1\r\n"


async def upstream(reader, writer):
    """Answers by the path: with a length, in chunks, or with 64 KiB."""
    while message := await read_message(reader):
        head, body = message
        path = head.split(b" ", 2)[1]
        if path.startswith(b"/chunks"):
            writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b'e\r\n{"part":"one",\r\n' * 3 + b"0\r\n\r\n")
        elif path.startswith(b"/large"):
            writer.write(HEAD + b"Content-Length: 65536\r\n\r\n" + b"x" * 65536)
        else:
            said = b'{"hello":"world","received":%d}' % len(body)
            writer.write(HEAD + b"Content-Length: %d\r\nConnection: keep-alive\r\n\r\n%s" % (len(said), said))
    writer.close()


def certificate(work):
    """A CA, and a server's certificate for this machine."""
    run = lambda *args: subprocess.run(["openssl", *args], cwd=work, check=True, capture_output=True)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    run("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=training")
    run("req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
    (work / "names").write_text(f"subjectAltName=DNS:localhost,IP:{HERE}\n")
    run("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "server.pem", "-days", "2",
        "-extfile", "names")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(work / "server.pem", work / "server.key")
    return context


def token(binary, work):
    keys = subprocess.run([binary, "token", "keygen"], capture_output=True, text=True, check=True).stdout
    end = "-----END PRIVATE KEY-----\n"
    private, public = keys.split(end)
    (work / "private.pem").write_text(private + end)
    (work / "public.pem").write_text(public)
    issue = ["token", "issue", "--key", work / "private.pem", "--sub", "training", "--scope", "tool:*", "--ttl", "7200"]
    return subprocess.run([binary, *issue], capture_output=True, text=True, check=True).stdout.strip()


def prepare(work, plain, tls):
    (work / "manifests").mkdir()
    (work / "credentials").write_text(json.dumps({"sandbox_signing_shared_secret": SECRET, "key": "upstream-key-of-training"}))
    (work / "credentials").chmod(0o600)
    (work / "server.py").write_text(MCP_SERVER)
    attached = 'auth_type = "bearer"\nauth_key_name = "key"\n'
    route = '[provider]\nname = "{0}"\nhandler = "passthrough"\nbase_url = "{1}"\npath_prefix = "/{0}"\n' + attached
    manifests = {
        "plain": route.format("plain", f"http://{HERE}:{plain}"),
        "tls": route.format("tls", f"https://{HERE}:{tls}"),
        "api": f'[provider]\nname = "api"\ndescription = "api"\nbase_url = "http://{HERE}:{plain}"\n' + attached + "".join(
            f'\n[[tools]]\nname = "api_{method.lower()}"\ndescription = "{method}"\nendpoint = "/hello"\nmethod = "{method}"\n'
            'scope = "tool:api"\n\n[tools.input_schema]\ntype = "object"\nrequired = ["q"]\n\n[tools.input_schema.properties.q]\ntype = "string"\n'
            for method in ("GET", "POST")),
        "program": f'[provider]\nname = "program"\nhandler = "mcp"\nmcp_command = "{sys.executable}"\nmcp_args = ["{work}/server.py"]\n',
    }
    for name, text in manifests.items():
        (work / "manifests" / f"{name}.toml").write_text(text)


def request(method, path, body=b"", headers=()):
    now = str(int(time.time()))
    mac = hmac.new(SECRET.encode(), f"{now}.{method}.{path.split('?')[0]}".encode(), hashlib.sha256).hexdigest()
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HERE}", f"X-Sandbox-Signature: t={now},s={mac}", "X-Sandbox-Job-Id: job-1",
             "User-Agent: python-httpx/0.28.1", "Accept: application/json, text/event-stream", "Accept-Encoding: gzip, deflate", *headers]
    if body:
        lines += ["Content-Type: application/json"]
        if "Transfer-Encoding: chunked" in headers:
            body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        else:
            lines += [f"Content-Length: {len(body)}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


async def ask(port, make, count, expected=b"200"):
    """So many requests, by callers that each keep their connection."""

    async def caller(own):
        reader, writer = await asyncio.open_connection(HERE, port)
        for _ in range(own):
            sent = make()
            writer.write(sent)
            answer = await read_message(reader)
            if answer is None or answer[0].split(b" ", 2)[1] != expected:
                sys.exit(f"not {expected.decode()}: {answer and answer[0] + answer[1][:500]!r}, to {sent!r}")
        writer.close()

    await asyncio.gather(*(caller(count // CALLERS) for _ in range(CALLERS)))


def workload(bearer, scale):
    """What is asked, how often, and which status is expected."""
    auth = (f"Authorization: Bearer {bearer}",)
    call = lambda tool, **args: request("POST", "/call", json.dumps({"tool_name": tool, "args": args}).encode(), auth)
    native = lambda method, **params: request(
        "POST", "/mcp", json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode(), auth)
    chunked = ("Transfer-Encoding: chunked",)
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello " * 40}]}).encode()
    return [
        (lambda: request("GET", "/plain/hello"), 12000 * scale, b"200"),
        (lambda: request("POST", "/plain/v1/messages?beta=true", body), 6000 * scale, b"200"),
        (lambda: request("GET", "/plain/chunks"), 3000 * scale, b"200"),
        (lambda: request("GET", "/plain/large"), 300 * scale, b"200"),
        (lambda: request("GET", "/tls/hello"), 6000 * scale, b"200"),
        (lambda: request("POST", "/tls/v1/messages", body), 3000 * scale, b"200"),
        (lambda: call("api_get", q="hello world"), 3000 * scale, b"200"),
        (lambda: call("api_post", q="hello world"), 2000 * scale, b"200"),
        (lambda: call("program:echo", message="hello world"), 3000 * scale, b"200"),
        (lambda: native("tools/call", name="program:echo", arguments={"message": "hello world"}), 1000 * scale, b"200"),
        (lambda: native("tools/list"), 200 * scale, b"200"),
        (lambda: request("POST", "/plain/v1/messages", body, chunked), 600 * scale, b"200"),
        (lambda: request("GET", "/plain/hello", headers=("TE: trailers",)), 300 * scale, b"200"),
        (lambda: request("GET", "/health"), 200 * scale, b"200"),
        (lambda: request("GET", "/plain/hello").replace(b",s=", b",s=00"), 200 * scale, b"403"),
    ]


async def train(binary, rounds):
    with tempfile.TemporaryDirectory(prefix="ati-training-") as work:
        work = Path(work)
        plain = await asyncio.start_server(upstream, HERE, 0)
        tls = await asyncio.start_server(upstream, HERE, 0, ssl=certificate(work))
        port = lambda server: server.sockets[0].getsockname()[1]
        prepare(work, port(plain), port(tls))
        bearer = token(binary, work)
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LLVM_PROFILE_FILE")}
        environment = kept | {"HOME": str(work), "ATI_DIR": str(work), "ATI_KEY_FILE": str(work / "none"),
                              "ATI_JWT_PUBLIC_KEY": str(work / "public.pem")}
        for access in ("true", "false"):
            ready, conf = work / f"ready-{access}", work / f"ati-{access}.toml"
            conf.write_text(f'[server]\nworkers = 1\n[log]\naccess = {access}\nsignatures = {access}\n[egress]\nca_file = "{work}/ca.pem"\n')
            command = [binary, "proxy", "--port", "0", "--admin", f"{HERE}:0", "--ready-file", ready, "--conf", conf, "--enable-passthrough",
                       "--sig-verify-mode", "enforce"]
            with open(work / "log", "wb") as log:
                process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            try:
                deadline = time.monotonic() + 60
                while not ready.exists():
                    if process.poll() is not None or time.monotonic() > deadline:
                        sys.exit(f"ati doesn't start:\n{(work / 'log').read_text()}")
                    await asyncio.sleep(0.05)
                edge = int(json.loads(ready.read_text())["edge"].rsplit(":", 1)[1])
                for make, count, expected in workload(bearer, rounds):
                    await ask(edge, make, count, expected)
                process.send_signal(signal.SIGTERM)  # counts are written at a regular end
                if (status := await asyncio.to_thread(process.wait, 60)) != 0:
                    sys.exit(f"ati ended with status {status}")
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
            print(f"trained with access logs {'on' if access == 'true' else 'off'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", type=Path)
    parser.add_argument("--rounds", type=int, default=1, help="so many times the usual number of requests")
    args = parser.parse_args()
    asyncio.run(train(args.binary.resolve(), args.rounds))


main()
