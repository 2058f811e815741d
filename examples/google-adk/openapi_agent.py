"""Google ADK with ati: tools of OpenAPI and HTTP (Crossref, arXiv, Hacker News).

    pip install -r requirements.txt
    export GOOGLE_API_KEY=...
    python openapi_agent.py

The agent has a shell and nothing else. Where ATI_PROXY_URL is set, its tools and their keys are on
the proxy; otherwise they are those of ATI_DIR, by default this repository's manifests.
"""

import asyncio
import os
import pathlib
import subprocess
import sys

from google.adk.agents import Agent
from google.adk.runners import InMemoryRunner
from google.genai import types

ATI_DIR = os.environ.get("ATI_DIR", str(pathlib.Path(__file__).resolve().parents[2]))
TASK = "Find a paper about proxies on Crossref and on arXiv, and the top story of Hacker News."


def run_shell(command: str) -> str:
    """Run a command in the shell, and return what it printed."""
    print(f"$ {command}")
    env = {**os.environ, "ATI_DIR": ATI_DIR}
    done = subprocess.run(command, shell=True, env=env, capture_output=True, text=True, timeout=120)
    return done.stdout + done.stderr


async def main() -> None:
    agent = Agent(
        name="ati",
        model=os.environ.get("GOOGLE_MODEL", "gemini-2.5-pro"),
        instruction=subprocess.check_output(["ati", "prompt"], text=True),
        tools=[run_shell],
    )
    runner = InMemoryRunner(agent=agent, app_name="ati")
    session = await runner.session_service.create_session(app_name="ati", user_id="me")
    question = types.Content(role="user", parts=[types.Part(text=" ".join(sys.argv[1:]) or TASK)])
    async for event in runner.run_async(user_id="me", session_id=session.id, new_message=question):
        for part in (event.content.parts if event.content else None) or []:
            if part.text:
                print(part.text)


asyncio.run(main())
