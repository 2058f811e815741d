#!/usr/bin/env python3
"""What the two forms of ati's tool list cost in a model's context: tokens of the whole result of tools/list, for the first 10, 100 and
1,000 tools of GitHub's OpenAPI document, and for ?tools=search. Counted with o200k_base, the tokenizer of GPT-4o, from npm's js-tiktoken,
which works offline. Other models' tokenizers give other numbers, of the same order.

Usage: mcp_tokens.py [--ati BINARY]; npm has to be there.
"""

import argparse, json, os, subprocess, tempfile, time, urllib.request
from pathlib import Path

from passthrough import TARGET

CACHE = Path(os.environ.get("ATI_WILD_CACHE", Path.home() / ".cache" / "ati-wild"))
DOCUMENT = CACHE / "github" / "generated" / "api.github.com.json"
COUNT = """
const { Tiktoken } = require("js-tiktoken/lite");
const encoder = new Tiktoken(require("js-tiktoken/ranks/o200k_base"));
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(texts.map((text) => encoder.encode(text).length)));
"""


def tokenizer():
    folder = CACHE / "tokenizer"
    if not (folder / "node_modules" / "js-tiktoken").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "js-tiktoken@1"], cwd=folder, check=True)
    return folder


def count(texts):
    done = subprocess.run(["node", "-e", COUNT], input=json.dumps(texts), capture_output=True, text=True, check=True, cwd=tokenizer())
    return json.loads(done.stdout)


def ask(url, method, params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["result"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ati", default=str(TARGET / "ati"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ati-tokens-") as home:
        env = dict(PATH=os.environ["PATH"], HOME=home, ATI_DIR=home, ATI_KEY_FILE=f"{home}/none")
        subprocess.run([options.ati, "provider", "import-openapi", str(DOCUMENT), "--name", "github"], env=env, check=True, capture_output=True)
        ready = Path(home) / "ready"
        proxy = subprocess.Popen([options.ati, "proxy", "--port", "0", "--ready-file", str(ready)], env=env, stderr=subprocess.DEVNULL)
        try:
            while not ready.exists() or not ready.read_text():
                time.sleep(0.05)
            url = "http://" + json.loads(ready.read_text())["edge"] + "/mcp"
            tools, cursor = [], None
            while True:
                page = ask(url, "tools/list", {"cursor": cursor} if cursor else {})
                tools += page["tools"]
                cursor = page.get("nextCursor")
                if not cursor:
                    break
            search = ask(url + "?tools=search", "tools/list", {})
        finally:
            proxy.kill()
            proxy.wait()
    text = lambda value: json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    sizes = [10, 100, 1000]
    # Spread over the whole list, so that ten tools are as mixed as a thousand.
    lists = [{"tools": tools[:: len(tools) // size][:size]} for size in sizes]
    counted = count([text(one) for one in lists] + [text(search)])
    print("| Tools | all of them | `?tools=search` |\n|---|---|---|")
    for size, tokens in zip(sizes, counted):
        print(f"| {size:,} | {tokens:,} | {counted[-1]:,} |")


main()
