"""`ati` as the client that the MCP conformance suite tests: connects to the URL that the suite
gives, and calls the tools of its scenario.

Usage: conformance_client.py ATI_BINARY URL (the suite appends the URL)
"""

import json
import os
import subprocess
import sys
import tempfile

ati, url = sys.argv[1], sys.argv[-1]
scenario = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")

# What to call where the suite names nothing.
CALLS = {
    "tools_call": [("add_numbers", {"a": 5, "b": 3})],
    "http-standard-headers": [("test_headers", {})],
    "http-invalid-tool-headers": [("valid_tool", {"region": "eu-1"})],
    # Only its listing is looked at.
    "json-schema-ref-no-deref": [],
}


def words(arguments):
    flags = []
    for name, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value)
        flags.append(f"--{name}={text}")
    return flags


def run(env, *args):
    done = subprocess.run([ati, *args], env=env, capture_output=True, text=True, timeout=60)
    print(args, done.returncode, done.stdout, done.stderr, file=sys.stderr)
    return done


with tempfile.TemporaryDirectory(prefix="ati-conformance-") as home:
    os.mkdir(f"{home}/manifests")
    with open(f"{home}/manifests/suite.toml", "w") as file:
        file.write(f'[provider]\nname = "suite"\nhandler = "mcp"\nmcp_transport = "http"\nmcp_url = "{url}"\n')
    env = {"PATH": os.environ["PATH"], "HOME": home, "ATI_DIR": home, "ATI_KEY_FILE": f"{home}/none"}
    listed = run(env, "tool", "list", "--provider", "suite", "--output", "json")
    tools = [row["name"].split(":", 1)[1] for row in json.loads(listed.stdout or "[]")]
    calls = [(call["name"], call.get("arguments") or {}) for call in context.get("toolCalls", [])]
    if not calls:
        calls = CALLS.get(scenario, [(name, {}) for name in tools])
    failed = [name for name, arguments in calls if run(env, "run", f"suite:{name}", *words(arguments)).returncode]
    sys.exit(1 if listed.returncode or failed else 0)
