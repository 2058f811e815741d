#!/usr/bin/env python3
"""The petstore of @readme/oas-examples in 2.0, 3.0 and 3.1 gives the same tools and, except for
uploads, the same requests."""

import argparse, http.server, json, os, random, re, subprocess, sys, tempfile, threading
from pathlib import Path

from openapi import Generator


class Recorder:
    def __init__(self):
        self.seen = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def serve(self):
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                kind = self.headers.get("content-type", "")
                boundary = re.search(r"boundary=(\S+)", kind)
                if boundary:
                    body, kind = body.replace(boundary[1].encode(), b"B"), kind.split(";")[0]
                headers = {k.lower(): v for k, v in self.headers.items() if k.lower() in ("api_key", "authorization")}
                outer.seen.append((self.command, self.path, kind, body, headers))
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = serve

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ati", required=True)
    parser.add_argument("--examples", required=True)
    args = parser.parse_args()
    recorder = Recorder()
    tools, requests, arguments = {}, {}, {}
    for version in ("2.0", "3.0", "3.1"):
        folder = Path(tempfile.mkdtemp(prefix="ati-petstore-"))
        environment = dict(PATH=os.environ["PATH"], HOME=str(folder), ATI_DIR=str(folder), ATI_KEY_FILE=str(folder / "none"))
        run = lambda *words: subprocess.run([args.ati, *words], env=environment, capture_output=True, text=True)
        done = run("provider", "import-openapi", f"{args.examples}/{version}/json/petstore.json", "--name", "petstore")
        assert done.returncode == 0, done.stderr
        manifest = folder / "manifests" / "petstore.toml"
        text = re.sub(r'(?m)^base_url = .*', f'base_url = "{recorder.base}"', manifest.read_text())
        # The three versions differ in which security scheme comes first.
        manifest.write_text(re.sub(r'(?m)^auth_.*\n', "", text))
        listed = json.loads(run("tool", "list", "--provider", "petstore").stdout)
        tools[version] = [(tool["tool"], tool["method"], tool["scope"]) for tool in listed]
        requests[version] = {}
        for name, *_ in tools[version]:
            if name not in arguments:
                schema = json.loads(run("tool", "info", name).stdout)["input_schema"]
                arguments[name] = Generator(random.Random(name), schema).arguments(schema)
            # A text is typed as it is; everything else is JSON.
            words = [f"--{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in arguments[name].items()]
            recorder.seen.clear()
            done = run("run", name, *words)
            assert done.returncode == 0, f"{version} {name}: {done.stderr}"
            requests[version][name] = recorder.seen[-1]
    wrong = 0
    for version in ("3.0", "3.1"):
        if tools[version] != tools["2.0"]:
            wrong += 1
            print(f"FAIL: tools of {version}: {set(tools[version]) ^ set(tools['2.0'])}")
        for name in requests["2.0"]:
            if name != "petstore:uploadFile" and requests[version].get(name) != requests["2.0"][name]:
                wrong += 1
                print(f"FAIL: {name}\n  2.0 {requests['2.0'][name]}\n  {version} {requests[version].get(name)}")
    print(f"petstore: {len(tools['2.0'])} tools in three versions")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
