"""Stubs of a thousand tools: they pass mypy --strict and tsc --strict, and call the tools.
Usage: stubs.py --ati BINARY --npm FOLDER"""

import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import client
from client import check

TYPES = [
    {"type": "string"},
    {"type": "integer"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": ["string", "null"]},
    {"enum": ["a", "b c", 'd"e']},
    {"type": "array", "items": {"type": "string"}},
    {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}},
    {"type": "object", "properties": {"deep": {"type": "object", "properties": {"er": {"type": "number"}}}}},
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]},
    {"type": "object"},
    {},
]
NAMES = ["query", "class", "from", "per.page", "X-Header", "2fa", "self", "args", "_private", "def", "None", "type", "ünicode", "a b"]


def catalogue(edge, url):
    """A thousand tools of ten providers, with every kind of schema and troublesome names."""
    chance = random.Random(1)
    for provider in range(10):
        lines = [f'[provider]\nname = "p{provider}"\nbase_url = "{url}"\n']
        for number in range(100):
            chosen = chance.sample(NAMES, chance.randint(0, 5))
            properties = {name: {**chance.choice(TYPES), "description": 'says """ and */ and \\ here'} for name in chosen}
            required = [name for name in chosen if chance.random() < 0.4]
            schema = json.dumps({"type": "object", "properties": properties, "required": required})
            name = f"p{provider}:{chance.choice(['get', 'class', 'x-y', 'import'])}_{number}"
            lines.append(f'[[tools]]\nname = "{name}"\nmethod = "POST"\ndescription = "Line \\"one\\"\\nline */ two"\n{toml(schema)}')
        lines.append('[[tools]]\nname = "p%d:echo"\nmethod = "POST"\n[tools.input_schema]\ntype = "object"\nrequired = ["q.x"]\nproperties = {"q.x" = {type = "string"}, n = {type = "integer"}}\n' % provider)
        edge.write(f"manifests/p{provider}.toml", "".join(lines))


def toml(schema):
    """A JSON schema as an inline table."""

    def value(item):
        if isinstance(item, dict):
            return "{" + ", ".join(f"{json.dumps(key)} = {value(one)}" for key, one in item.items()) + "}"
        if isinstance(item, list):
            return "[" + ", ".join(map(value, item)) + "]"
        return json.dumps(item)

    return f"input_schema = {value(json.loads(schema))}\n"


def ran(line, **options):
    return subprocess.run(line, capture_output=True, text=True, timeout=300, **options)


PYTHON = """
import tools
found = tools.p3_echo(q_x="red hat", n=3)
assert found["marker"] == "seen-by-the-upstream", found
try:
    tools.p3_echo(q_x="x", n="many")  # type: ignore[arg-type]
    raise SystemExit("no error")
except tools.AtiError as error:
    assert error.code == "input.invalid_value", error.code
"""

TYPESCRIPT = """
import * as tools from "./tools.js";
const found = await tools.p3_echo<{ marker: string }>({ "q.x": "red hat", n: 3 });
if (found.marker !== "seen-by-the-upstream") throw new Error(JSON.stringify(found));
let code = "";
try {
  // @ts-expect-error: a text is no integer
  await tools.p3_echo({ "q.x": "x", n: "many" });
} catch (error) {
  code = (error as tools.AtiError).code;
}
if (code !== "input.invalid_value") throw new Error(code);
"""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ati", required=True)
    parser.add_argument("--npm", required=True, type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        home = pathlib.Path(home)
        edge = client.Edge(args.ati, home / "edge")
        catalogue(edge, client.upstream())
        edge.start()
        try:
            use(edge, home, args.npm)
        finally:
            edge.stop()
    client.finish("of stubs")


def use(edge, home, npm):
    variables = edge.provision("agent", "p0:*,p1:*,p2:*,p3:*,p4:*,p5:*,p6:*,p7:*,p8:*,p9:*")
    env = edge.env(ATI_BIN=edge.ati, ATI_DIR=str(home / "box"), **variables)
    for lang in ("py", "ts"):
        made = ran([edge.ati, "tool", "stubs", "--lang", lang], env=env)
        check(f"{lang}: stubs of the catalogue", made.returncode == 0 and made.stdout.count("marker") == 0, made.stderr)
        (home / f"tools.{lang}").write_text(made.stdout)
    count = (home / "tools.py").read_text().count("\ndef p")
    check("a function for each of 1,010 tools", count == 1010, count)
    (home / "use.py").write_text(PYTHON)
    (home / "use.ts").write_text(TYPESCRIPT)
    typed = ran([sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "tools.py", "use.py"], cwd=home)
    check("mypy --strict", typed.returncode == 0, typed.stdout + typed.stderr)
    called = ran([sys.executable, "use.py"], cwd=home, env=env)
    check("Python stubs call their tools", called.returncode == 0, called.stderr)
    (home / "node_modules").symlink_to(npm / "node_modules")
    (home / "package.json").write_text('{"type": "module"}')
    flags = ["--strict", "--target", "es2022", "--module", "nodenext", "--types", "node", "--skipLibCheck", "--outDir", "out"]
    typed = ran([str(npm / "node_modules/.bin/tsc"), *flags, "use.ts", "tools.ts"], cwd=home)
    check("tsc --strict", typed.returncode == 0, typed.stdout + typed.stderr)
    called = ran(["node", "out/use.js"], cwd=home, env=env)
    check("TypeScript stubs call their tools", called.returncode == 0, called.stderr)


if __name__ == "__main__":
    main()
