"""A sandbox that reaches the edge and nothing else, and holds no key: network namespaces of its own,
and a file system with a system, ati, Python and an empty home. In it: `ati run`, an MCP client, and
a signed call by requests. Needs root. Usage: namespace.py --ati BINARY"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import client
from client import API_KEY, SECRET, SIGNING, check

HERE = pathlib.Path(__file__).resolve().parent
SANDBOX, EDGE, WORLD = "ati-box", "ati-edge", "ati-world"


def run(*line, **options):
    return subprocess.run(line, check=True, **options)


class Networks:
    """sandbox 10.77.1.2 - 10.77.1.1 edge 10.77.2.1 - 10.77.2.2 world. The edge forwards no packets."""

    def __enter__(self):
        self.__exit__()
        ip = shutil.which("ip") or "/usr/sbin/ip"
        for name in (SANDBOX, EDGE, WORLD):
            run(ip, "netns", "add", name)
            run(ip, "-n", name, "link", "set", "lo", "up")
        for net, name in ((1, SANDBOX), (2, WORLD)):
            run(ip, "link", "add", f"ati{net}a", "netns", EDGE, "type", "veth", "peer", "name", f"ati{net}b", "netns", name)
            for side, namespace, host in (("a", EDGE, 1), ("b", name, 2)):
                run(ip, "-n", namespace, "addr", "add", f"10.77.{net}.{host}/24", "dev", f"ati{net}{side}")
                run(ip, "-n", namespace, "link", "set", f"ati{net}{side}", "up")
        return self

    def __exit__(self, *_):
        ip = shutil.which("ip") or "/usr/sbin/ip"
        for name in (SANDBOX, EDGE, WORLD):
            subprocess.run([ip, "netns", "del", name], stderr=subprocess.DEVNULL)


def inside(namespace):
    return (shutil.which("ip") or "/usr/sbin/ip", "netns", "exec", namespace)


def upstream(home):
    """The API behind the edge, in a namespace that the sandbox can't reach."""
    ready = home / "upstream"
    code = (
        "import client, http.server, os, sys\n"
        "server = client.Server(('10.77.2.2', 0), client.Upstream)\n"
        "open(sys.argv[1] + '.new', 'w').write(str(server.server_address[1]))\n"
        "os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
        "server.serve_forever()\n"
    )
    process = subprocess.Popen([*inside(WORLD), sys.executable, "-c", code, str(ready)], cwd=HERE)
    while not ready.exists():
        if process.poll() is not None:
            check("the upstream starts", False)
        time.sleep(0.02)
    return process, f"http://10.77.2.2:{ready.read_text()}"


# What happens in the sandbox. Its mounts end with its namespace.
ENTER = """
set -eu
root=$1 ati=$2
mount -t tmpfs none "$root"
for dir in /usr /bin /lib /lib64 %(python)s; do
    [ -e "$dir" ] || continue
    mkdir -p "$root$dir"
    mount --bind -o ro "$dir" "$root$dir"
done
mkdir -p "$root/proc" "$root/dev" "$root/tmp" "$root/home" "$root/etc" "$root/opt" "$root/run/ati"
mount -t proc none "$root/proc"
for dev in null urandom; do touch "$root/dev/$dev"; mount --bind "/dev/$dev" "$root/dev/$dev"; done
touch "$root/opt/ati"; mount --bind -o ro "$ati" "$root/opt/ati"
printf %%s "$SIGNING" > "$root/run/ati/sandbox_secret"; unset SIGNING
cp "$3" "$root/home/work.py"
exec chroot "$root" %(python_bin)s /home/work.py
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ati", required=True)
    args = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("unshare"):
        if os.environ.get("ATI_TEST_ALLOW_SKIP") == "1":
            return print("skipped: not root")
        check("root, for namespaces", False, "ATI_TEST_ALLOW_SKIP=1 skips this")
    with tempfile.TemporaryDirectory() as home, Networks():
        home = pathlib.Path(home)
        world, url = upstream(home)
        edge = client.Edge(args.ati, home / "edge")
        key = 'auth_type = "bearer"\nauth_key_name = "api_key"\n'
        edge.write("manifests/shop.toml", f'[provider]\nname = "shop"\nbase_url = "{url}"\n{key}[[tools]]\nname = "shop:find"\nendpoint = "/find"\n[[tools]]\nname = "shop:buy"\nendpoint = "/buy"\n')
        edge.write("manifests/route.toml", f'[provider]\nname = "route"\nhandler = "passthrough"\nbase_url = "{url}"\npath_prefix = "/route"\n{key}')
        try:
            edge.start("--bind", "10.77.1.1", "--enable-passthrough", "--sig-verify-mode", "enforce", prefix=inside(EDGE))
            live(edge, home, args.ati, url)
        finally:
            edge.stop()
            world.kill()
            world.wait()
    client.finish("in a network namespace")


def live(edge, home, ati, url):
    variables = edge.provision("sandbox:1", "shop:find")
    python = sorted({sys.prefix, sys.base_prefix} - {"/usr"})
    script = home / "enter.sh"
    script.write_text(ENTER % {"python": " ".join(python), "python_bin": sys.executable})
    root = home / "root"
    root.mkdir()
    env = {"PATH": "/opt:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/home", "ATI_DIR": "/home/.ati", "SIGNING": SIGNING, "ATI_KEY_FILE": "/nonexistent", "UPSTREAM": url, **variables}
    line = [*inside(SANDBOX), "unshare", "--mount", "--pid", "--fork", "sh", str(script), str(root), ati, str(HERE / "in_sandbox.py")]
    done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=180)
    check("the sandbox ran", done.returncode == 0, done.stdout + done.stderr)
    seen = json.loads(done.stdout.splitlines()[-1])
    # The names are secrets' values: the sandbox has none of them.
    for name, secret in (("API key", API_KEY), ("token key", SECRET)):
        check(f"no {name} in its environment", secret not in json.dumps(seen["environment"]))
        check(f"no {name} in its files", secret not in seen["files"] and len(seen["files"]) > 10)
    check("the upstream can't be reached", not seen["upstream_reached"], seen)
    check("nor anything but the edge", seen["routes"] == ["10.77.1.0/24"] and seen["ports"] == [seen["edge_port"]], seen)
    check("ati run", seen["run"]["has_key"] and seen["run"]["path"] == "/find?q=1", seen["run"])
    check("an MCP client", seen["mcp"]["tools"] == ["shop:find"] and "seen-by-the-upstream" in seen["mcp"]["text"], seen["mcp"])
    check("a signed call by requests", seen["routed"]["has_key"] and seen["routed"]["path"] == "/x", seen["routed"])
    check("an unsigned call is refused", seen["unsigned"] == 403, seen["unsigned"])
    check("another tool is refused", seen["denied"] == 3, seen["denied"])


if __name__ == "__main__":
    main()
