#!/usr/bin/env python3
"""Runfiles with what others have made: the crate `run` reads the same functions out of the same
file, and Python's mcp talks to `run --serve-mcp` as RFC 003's claude_desktop_config.json starts it,
with a link to ati in the place of `run`.

Usage: runfile.py --ati BINARY [--run BINARY]   (with the Python that has mcp)
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile

# Otherwise mcp.py of this folder would be taken for the library.
del sys.path[0]
from mcp import Client, StdioServerParameters

SEED = """\
# @desc Search the codebase for specific patterns
# @arg 1:pattern string The regex pattern to search for
# @shell python
search() {
    import sys, os, re
    pattern = sys.argv[1]
    # ... python logic to walk dir and json.dump results ...
    import json
    json.dump({"pattern": pattern}, sys.stdout)
}

# @desc Deploy the application
# @arg 1:env string The target environment (staging|prod)
deploy() {
    ./scripts/deploy.sh $1
}

# @desc Scale a specific service
# @arg 1:service string The name of the docker service (e.g., 'web')
# @arg 2:replicas integer The number of instances to spin up
scale() {
    docker compose scale $1=$2
}
"""
MORE = """
# @desc Greets
# @arg name Who is greeted
greet(name: str, times: int = 2, loud: bool = false) {
    echo "$name $times $loud"
}

# @desc In a namespace
docker:logs(service = "app") docker compose logs -f $service

# @desc Takes all
all(...rest) echo "$rest"

function quiet() {
    echo nothing
}
"""
checks = 0


def check(what, good, seen=None):
    global checks
    checks += 1
    if not good:
        sys.exit(f"FAIL: {what}: {seen}")


def inspected(program, folder, home):
    env = {"PATH": os.environ["PATH"], "HOME": home, "RUN_NO_GLOBAL_MERGE": "1"}
    done = subprocess.run([program, "--inspect"], cwd=folder, env=env, capture_output=True, text=True, timeout=60)
    check(f"{program} --inspect", done.returncode == 0, done.stderr)
    tools = {}
    for tool in json.loads(done.stdout)["tools"]:
        # The RFC has input_schema, the crate has MCP's own name.
        schema = tool.get("input_schema") or tool["inputSchema"]
        arguments = {}
        for name, one in schema["properties"].items():
            # The crate adds it here; ati only where the function is called.
            if name != "timeout":
                arguments[name] = (one["type"], one.get("description"))
        tools[tool["name"]] = (tool["description"], arguments, sorted(schema.get("required", [])))
    return tools


def compare(ours, theirs):
    for name in ("search", "deploy", "scale", "greet", "docker__logs", "all"):
        check(f"{name} is read", name in ours and name in theirs, (sorted(ours), sorted(theirs)))
        check(f"{name}: description", ours[name][0] == theirs[name][0], (ours[name], theirs[name]))
        check(f"{name}: required", ours[name][2] == theirs[name][2], (ours[name], theirs[name]))
        types = [{key: value[0] for key, value in side[name][1].items()} for side in (ours, theirs)]
        check(f"{name}: types", types[0] == types[1], types)
        texts = [side[name][1] for side in (ours, theirs)]
        for argument, (_, text) in texts[0].items():
            if text is not None:
                check(f"{name}.{argument}: text", texts[1][argument][1] == text, texts)
    # The RFC shows all functions, the crate those with a description.
    check("quiet is shown", "quiet" in ours and "quiet" not in theirs, (sorted(ours), sorted(theirs)))


async def desktop(config, home, path):
    server = config["mcpServers"]["my-project"]
    env = {"PATH": path, "HOME": home}
    for mode in ("legacy", "2026-07-28"):
        parameters = StdioServerParameters(command=server["command"], args=server["args"], cwd=server["cwd"], env=env)
        async with Client(parameters, mode=mode) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            check(f"{mode}: tools", {"search", "deploy", "scale"} <= tools and "quiet" not in tools, tools)
            found = await client.call_tool("search", {"pattern": "TODO"})
            check(f"{mode}: search", found.structured_content == {"pattern": "TODO"}, found)
            for value in ("staging", "$(id)", '"; id; "', "`id`", "--flag", "a\nb", "*"):
                done = await client.call_tool("deploy", {"env": value})
                check(f"{mode}: deploy {value!r}", done.structured_content == {"result": [value]}, done)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ati", required=True)
    parser.add_argument("--run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        project, links = f"{home}/project", f"{home}/bin"
        os.makedirs(f"{project}/scripts")
        os.makedirs(links)
        os.symlink(os.path.abspath(options.ati), f"{links}/run")
        with open(f"{project}/Runfile", "w") as file:
            file.write(SEED + MORE)
        script = f"{project}/scripts/deploy.sh"
        with open(script, "w") as file:
            file.write("#!/usr/bin/env python3\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
        os.chmod(script, 0o755)
        if options.run:
            compare(inspected(f"{links}/run", project, home), inspected(options.run, project, home))
        config = {"mcpServers": {"my-project": {"command": "run", "args": ["--serve-mcp"], "cwd": project}}}
        # As a client does: the command is looked up in its own PATH.
        path = f"{links}:{os.environ['PATH']}"
        os.environ["PATH"] = path
        asyncio.run(desktop(config, home, path))
    print(f"Runfiles: {checks} checks")


main()
