"""OpenAI Agents SDK with ati: tools of OpenAPI and HTTP (Crossref, arXiv, Hacker News).

    pip install -r requirements.txt
    export OPENAI_API_KEY=...
    python openapi_agent.py

The agent has a shell and nothing else. Where ATI_PROXY_URL is set, its tools and their keys are on
the proxy; otherwise they are those of ATI_DIR, by default this repository's manifests.
"""

import os
import pathlib
import subprocess
import sys

from agents import Agent, Runner, function_tool

ATI_DIR = os.environ.get("ATI_DIR", str(pathlib.Path(__file__).resolve().parents[2]))
TASK = "Find a paper about proxies on Crossref and on arXiv, and the top story of Hacker News."


@function_tool
def run_shell(command: str) -> str:
    """Run a command in the shell, and return what it printed."""
    print(f"$ {command}")
    env = {**os.environ, "ATI_DIR": ATI_DIR}
    done = subprocess.run(command, shell=True, env=env, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


agent = Agent(
    name="ati",
    instructions=subprocess.check_output(["ati", "prompt"], text=True),
    tools=[run_shell],
    model=os.environ.get("OPENAI_MODEL", "gpt-5"),
)
print(Runner.run_sync(agent, " ".join(sys.argv[1:]) or TASK, max_turns=20).final_output)
