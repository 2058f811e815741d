"""A thousand sandboxes: each provisioned with a tool of its own, each sending one signed request to
a route and one call, and each trying another one's tool. Prints what it took.
Usage: sandboxes.py --ati BINARY [--count N]"""

import argparse
import collections
import concurrent.futures
import pathlib
import statistics
import tempfile
import time

import requests

import ati
import client
from client import API_KEY, SECRET, SIGNING, check


def manifests(edge, url, count):
    tools = "".join(f'[[tools]]\nname = "fleet:t{n}"\nendpoint = "/t{n}"\n' for n in range(count))
    common = f'base_url = "{url}"\nauth_type = "bearer"\nauth_key_name = "api_key"\n'
    edge.write("manifests/fleet.toml", f'[provider]\nname = "fleet"\n{common}{tools}')
    edge.write("manifests/route.toml", f'[provider]\nname = "route"\nhandler = "passthrough"\npath_prefix = "/route"\n{common}')


def live(number, count, env):
    """One sandbox's life. Returns what it saw, and how long its two requests took."""
    began = time.perf_counter()
    with requests.Session() as session:
        session.mount(env["ATI_PROXY_URL"], ati.SandboxAdapter(env["ATI_SANDBOX_SECRET"]))
        routed = session.get(f"{env['ATI_PROXY_URL']}/route/s{number}")
    with ati.AtiClient(env["ATI_PROXY_URL"], env["ATI_SESSION_TOKEN"], sandbox_secret=env["ATI_SANDBOX_SECRET"]) as own:
        called = own.call(f"fleet:t{number}")
        took = time.perf_counter() - began
        names = [tool["name"] for tool in own.tools(provider="fleet")]
        try:
            other = own.call(f"fleet:t{(number + 1) % count}")
        except ati.AccessDenied:
            other = None
    return routed, called, names, other, took


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ati", required=True)
    parser.add_argument("--count", type=int, default=1000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        edge = client.Edge(args.ati, pathlib.Path(home) / "edge")
        manifests(edge, client.upstream(), args.count)
        edge.start("--enable-passthrough", "--sig-verify-mode", "enforce")
        try:
            measure(edge, args.count)
        finally:
            edge.stop()
        log = (edge.home / "log").read_text()
        check("no key in the log", API_KEY not in log and SIGNING not in log and SECRET not in log)
    client.finish("of the fleet")


def measure(edge, count):
    orch = ati.AtiOrchestrator(proxy_url=edge.url, secret=SECRET, sandbox_secret=SIGNING)
    began = time.perf_counter()
    fleet = [orch.provision_sandbox(agent_id=f"sandbox:{n}", tools=[f"fleet:t{n}"]) for n in range(count)]
    provisioned = time.perf_counter() - began
    began = time.perf_counter()
    for number in range(10):
        edge.provision(f"sandbox:{number}", f"fleet:t{number}")
    by_shell = (time.perf_counter() - began) / 10
    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        lives = list(pool.map(lambda n: live(n, count, fleet[n]), range(count)))
    lived = time.perf_counter() - began
    wrong = collections.Counter()
    for number, (routed, called, names, other, _) in enumerate(lives):
        wrong["route"] += routed.status_code != 200 or routed.json()["path"] != f"/s{number}" or not routed.json()["has_key"]
        wrong["call"] += called["path"] != f"/t{number}" or not called["has_key"]
        wrong["list"] += names != [f"fleet:t{number}"]
        wrong["other"] += other is not None
    check(f"{count} sandboxes: every signed request arrived, with the key that ati added", wrong["route"] == 0, wrong)
    check(f"{count} sandboxes: every call arrived", wrong["call"] == 0, wrong)
    check(f"{count} sandboxes: each sees its own tool and no other", wrong["list"] == 0, wrong)
    check(f"{count} sandboxes: none can call another one's tool", wrong["other"] == 0, wrong)
    times = sorted(life[4] for life in lives)
    print(
        f"provisioned {count} in {provisioned:.2f} s from Python ({1e6 * provisioned / count:.0f} us each), "
        f"{1e3 * by_shell:.0f} ms each by `ati sandbox provision`"
    )
    print(
        f"lived {count} in {lived:.1f} s, 16 at once, four requests each; signed request and call of one: "
        f"median {1e3 * statistics.median(times):.0f} ms, 99 of 100 within {1e3 * times[int(len(times) * 0.99)]:.0f} ms"
    )


if __name__ == "__main__":
    main()
