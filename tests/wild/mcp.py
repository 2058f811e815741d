"""Real MCP servers behind `ati`: npm's everything, memory and filesystem, and a stateless one of
Python's SDK.

Usage: mcp.py --ati BINARY --npm FOLDER --python INTERPRETER
"""

import argparse
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

PYTHON_SERVER = """
import sys
from mcp.server import MCPServer
server = MCPServer("demo")
@server.tool()
def add(a: int, b: int) -> int:
    "Add two numbers"
    return a + b
server.run(transport="streamable-http", port=int(sys.argv[1]))
"""

checks = 0


def check(what, holds, detail=""):
    global checks
    checks += 1
    if not holds:
        print(f"FAIL  {what}: {detail}")
        sys.exit(1)
    print(f"ok    {what}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what, look, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    check(what, False, "never happened")


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid):
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parents[int(name)] = int(file.read().rsplit(")", 1)[1].split()[1])
            except OSError:
                pass
    found, again = set(), {pid}
    while again:
        again = {child for child, parent in parents.items() if parent in again} - found
        found |= again
    return found


class World:
    def __init__(self, options, home):
        self.ati, self.home = options.ati, home
        self.bin = f"{options.npm}/node_modules/.bin"
        self.started = []
        os.makedirs(f"{home}/manifests")
        os.makedirs(f"{home}/files")

    def env(self, **more):
        return {"PATH": os.environ["PATH"], "HOME": self.home, "ATI_DIR": self.home, "ATI_KEY_FILE": f"{self.home}/none", **more}

    def manifest(self, name, text):
        with open(f"{self.home}/manifests/{name}.toml", "w") as file:
            file.write(f'[provider]\nname = "{name}"\nhandler = "mcp"\n{text}\n')

    def start(self, args, **more):
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(args, env=self.env(**more), stdin=quiet, stdout=quiet, stderr=quiet)
        self.started.append(process)
        return process

    def run(self, *args, **more):
        done = subprocess.run([self.ati, *args], env=self.env(**more), capture_output=True, text=True, timeout=120)
        try:
            return done.returncode, json.loads(done.stdout or "null"), done.stderr
        except ValueError:
            return done.returncode, done.stdout, done.stderr

    def end(self):
        for process in self.started:
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser()
    for name in ("--ati", "--npm", "--python"):
        parser.add_argument(name, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ati-mcp-") as home:
        world = World(options, home)
        try:
            go(world, options)
        finally:
            world.end()
    print(f"{checks} checks against real MCP servers")


def go(world, options):
    everything, python = free_port(), free_port()
    world.start([f"{world.bin}/mcp-server-everything", "streamableHttp"], PORT=str(everything))
    script = f"{world.home}/server.py"
    with open(script, "w") as file:
        file.write(PYTHON_SERVER)
    world.start([options.python, script, str(python)])
    wait_for("the servers", lambda: listens(everything) and listens(python))

    world.manifest("everything", f'mcp_command = "{world.bin}/mcp-server-everything"')
    world.manifest("over_http", f'mcp_transport = "http"\nmcp_url = "http://127.0.0.1:{everything}/mcp"')
    world.manifest("python", f'mcp_transport = "http"\nmcp_url = "http://127.0.0.1:{python}/mcp"')
    world.manifest("files", f'mcp_command = "{world.bin}/mcp-server-filesystem"\nmcp_args = ["{world.home}/files"]')
    world.manifest(
        "memory",
        f'mcp_command = "{world.bin}/mcp-server-memory"\n[provider.mcp_env]\nMEMORY_FILE_PATH = "{world.home}/memory.jsonl"',
    )
    # As manifests write it: npx starts a shell, which starts node.
    world.manifest("npx", f'mcp_command = "npx"\nmcp_args = ["--prefix", "{options.npm}", "mcp-server-everything"]')

    ready = f"{world.home}/ready"
    proxy = world.start([world.ati, "proxy", "--port", "0", "--admin", "127.0.0.1:0", "--ready-file", ready])
    wait_for("the proxy", lambda: os.path.exists(ready))
    with open(ready) as file:
        where = json.load(file)

    def states():
        connection = http.client.HTTPConnection(where["admin"], timeout=10)
        connection.request("GET", "/providers")
        return json.load(connection.getresponse())

    wait_for("every provider", lambda: all(one["state"] == "ready" for one in states().values()))
    protocols = {name: one["protocol"] for name, one in states().items()}
    check("npm's servers speak the handshake era", protocols["everything"] == protocols["over_http"] == "2025-11-25", protocols)
    check("Python's speaks the stateless one", protocols["python"] == "2026-07-28", protocols)

    through = {"ATI_PROXY_URL": f"http://{where['edge']}"}
    for where_from, env in (("here", {}), ("through the proxy", through)):
        for provider in ("everything", "over_http", "npx"):
            code, result, error = world.run("run", f"{provider}:echo", "--message", "hi", **env)
            check(f"{provider}:echo {where_from}", (code, result) == (0, "Echo: hi"), (result, error))
        code, result, error = world.run("run", "python:add", "--a", "2", "--b", "3", **env)
        check(f"python:add {where_from}", (code, result) == (0, 5), (result, error))
        code, result, error = world.run("run", "everything:get-tiny-image", **env)
        kinds = [item["type"] for item in result["content"]] if code == 0 else error
        check(f"an image {where_from}", kinds == ["text", "image", "text"], kinds)
        code, result, error = world.run("run", "everything:get-structured-content", "--location", "New York", **env)
        check(f"structured content {where_from}", code == 0 and "temperature" in result, (result, error))

        path = f"{world.home}/files/{where_from.replace(' ', '-')}.txt"
        code, _, error = world.run("run", "files:write_file", "--path", path, "--content", "written", **env)
        check(f"a file is written {where_from}", code == 0 and open(path).read() == "written", error)
        code, _, error = world.run("run", "files:read_text_file", "--path", "/etc/passwd", **env)
        check(f"and none outside {where_from}", code != 0 and "MCP error: Access denied" in error, error)
        entity = json.dumps([{"name": where_from, "entityType": "place", "observations": ["was here"]}])
        code, _, error = world.run("run", "memory:create_entities", "--entities", entity, **env)
        kept = open(f"{world.home}/memory.jsonl").read()
        check(f"memory is kept {where_from}", code == 0 and where_from in kept, error)

    family = descendants(proxy.pid)
    check("children and grandchildren run", len(family) >= 8, family)
    proxy.send_signal(signal.SIGKILL)
    proxy.wait()
    wait_for("no server process survives kill -9", lambda: not any(alive(pid) for pid in family), 15)
    check("no server process survives kill -9", True)


main()
