"""What the scripts of this folder share: checks, and servers on loopback."""

import http.client
import json
import os
import socket
import subprocess
import sys
import time

checks = 0


def check(what, holds, detail=""):
    global checks
    checks += 1
    if not holds:
        print(f"FAIL  {what}: {detail}")
        sys.exit(1)
    print(f"ok    {what}")


def finish(what):
    print(f"{checks} checks {what}")


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


class Proxy:
    def __init__(self, process, ready):
        self.process = process
        self.edge, self.admin = ready["edge"], ready["admin"]

    def states(self):
        connection = http.client.HTTPConnection(self.admin, timeout=10)
        connection.request("GET", "/providers")
        return json.load(connection.getresponse())

    def wait_until_ready(self):
        wait_for("every provider", lambda: all(one["state"] == "ready" for one in self.states().values()))


class World:
    """A folder for ati, and what was started from it."""

    def __init__(self, ati, home):
        self.ati, self.home, self.started = ati, home, []
        os.makedirs(f"{home}/manifests", exist_ok=True)

    def env(self, **more):
        return {"PATH": os.environ["PATH"], "HOME": self.home, "ATI_DIR": self.home, "ATI_KEY_FILE": f"{self.home}/none", **more}

    def manifest(self, name, text):
        with open(f"{self.home}/manifests/{name}.toml", "w") as file:
            file.write(f'[provider]\nname = "{name}"\nhandler = "mcp"\n{text}\n')

    def start(self, args, **more):
        quiet = subprocess.DEVNULL
        # Not in this folder: its mcp.py would be taken for the package of that name.
        env = self.env(**more)
        process = subprocess.Popen(args, cwd=self.home, env=env, stdin=quiet, stdout=quiet, stderr=quiet)
        self.started.append(process)
        return process

    def proxy(self, *args, **more):
        ready = f"{self.home}/ready-{len(self.started)}"
        process = self.start([self.ati, "proxy", "--port", "0", "--admin", "127.0.0.1:0", "--ready-file", ready, *args], **more)
        wait_for("the proxy", lambda: os.path.exists(ready))
        with open(ready) as file:
            return Proxy(process, json.load(file))

    def run(self, *args, **more):
        return subprocess.run([self.ati, *args], env=self.env(**more), capture_output=True, text=True, timeout=120)

    def end(self):
        for process in self.started:
            process.kill()
            process.wait()
