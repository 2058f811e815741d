"""Each example's agent loop, with its real SDK, against a stand-in model that scripts its tool calls
and a proxy that has the tools.
Usage: agents.py --ati BINARY --npm FOLDER --python EXAMPLE=PYTHON... [--only EXAMPLE]"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import client
import model
from client import REPOSITORY, check

SCRIPTS = {
    "mcp": ["ati tool search wiki", "ati tool info deepwiki:ask_question", "ati run deepwiki:ask_question --repoName cloudflare/pingora"],
    "openapi": [
        "ati tool search papers",
        "ati run crossref:listWorks --query proxies --rows 1",
        "ati run arxiv_search --search_query all:proxies --max_results 1",
        "ati run hackernews_top_stories",
    ],
}
SEEN = {"mcp": "cloudflare/pingora", "openapi": "/hackernews/topstories.json"}


def commands(npm, python):
    """How each example is run: the program, its ending, and the variables for its model."""
    return {
        "claude-agent-sdk": (python["claude-agent-sdk"], "py", lambda url: {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "IS_SANDBOX": "1", "DISABLE_TELEMETRY": "1"}),
        "openai-agents-sdk": (python["openai-agents-sdk"], "py", lambda url: {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "none", "OPENAI_AGENTS_DISABLE_TRACING": "1"}),
        "langchain": (python["langchain"], "py", lambda url: {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "none"}),
        "google-adk": (python["google-adk"], "py", lambda url: {"GOOGLE_GEMINI_BASE_URL": url, "GOOGLE_API_KEY": "none"}),
        "codex": ("sh", "sh", lambda url: {"OPENAI_API_KEY": "none", "PATH": f"{npm}/node_modules/.bin:{os.environ['PATH']}"}),
        "pi": ("node", "mjs", lambda url: {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none"}),
        "mcp-client": (python["mcp-client"], "py", lambda url: {}),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ati", required=True)
    parser.add_argument("--npm", required=True, type=pathlib.Path)
    parser.add_argument("--python", required=True, action="append")
    parser.add_argument("--only")
    args = parser.parse_args()
    python = dict(one.split("=", 1) for one in args.python)
    with tempfile.TemporaryDirectory() as home:
        home = pathlib.Path(home)
        edge = client.Edge(args.ati, home / "edge")
        edge.shipped(client.upstream())
        edge.start()
        (home / "bin").mkdir()
        (home / "bin/ati").symlink_to(args.ati)
        variables = edge.provision("agent", "deepwiki:*,crossref:*,arxiv_search,hackernews_stories")
        try:
            for name, (program, ending, for_model) in commands(args.npm, python).items():
                if args.only in (None, name):
                    for kind in ("mcp", "openapi"):
                        run(name, kind, program, ending, for_model, variables, home, args.npm)
        finally:
            edge.stop()
    client.finish("of the examples")


def run(name, kind, program, ending, for_model, variables, home, npm):
    stand_in = model.start(SCRIPTS[kind])
    own = for_model(stand_in.url)
    path = f"{home}/bin:{own.pop('PATH', os.environ['PATH'])}"
    box = home / f"{name}-{kind}"
    box.mkdir()
    env = {"PATH": path, "HOME": str(box), "ATI_DIR": str(box), **variables, **own}
    folder = REPOSITORY / "examples" / name
    if name == "codex":
        # It starts a login shell, which sets the path anew.
        (box / ".bash_profile").write_text(f"export PATH={path}\n")
        (box / ".codex").mkdir()
        (box / ".codex/config.toml").write_text(
            'model = "stand-in"\nmodel_provider = "stand-in"\napproval_policy = "never"\n'
            f'[model_providers.stand-in]\nname = "stand-in"\nbase_url = "{stand_in.url}/v1"\nwire_api = "responses"\nenv_key = "OPENAI_API_KEY"\n'
        )
    if name == "pi":
        # Its packages are looked for next to the script.
        folder = box / "pi"
        folder.mkdir()
        for script in (REPOSITORY / "examples/pi").iterdir():
            (folder / script.name).write_bytes(script.read_bytes())
        (folder / "node_modules").symlink_to(npm / "node_modules")
    script = folder / f"{kind}_agent.{ending}"
    done = subprocess.run([program, str(script)], cwd=box, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180)
    detail = f"exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}\nasked: {stand_in.asked}\npaths: {stand_in.paths}"
    if name != "mcp-client":
        check(f"{name} {kind}: every scripted command was run", stand_in.asked == SCRIPTS[kind], detail)
    check(f"{name} {kind}: the agent tells what the upstream said", done.returncode == 0 and SEEN[kind] in done.stdout, detail)
    stand_in.shutdown()


if __name__ == "__main__":
    sys.exit(main())
