"""LangChain and LangGraph with ati: an MCP server's tools (DeepWiki).

    pip install -r requirements.txt
    export OPENAI_API_KEY=...
    python mcp_agent.py

The agent has a shell and nothing else. Where ATI_PROXY_URL is set, its tools and their keys are on
the proxy; otherwise they are those of ATI_DIR, by default this repository's manifests.
"""

import os
import pathlib
import subprocess
import sys

from langchain.agents import create_agent
from langchain_community.tools import ShellTool

os.environ.setdefault("ATI_DIR", str(pathlib.Path(__file__).resolve().parents[2]))
TASK = "Which modules does the repository cloudflare/pingora have? Ask DeepWiki."

agent = create_agent(
    os.environ.get("OPENAI_MODEL", "openai:gpt-5"),
    tools=[ShellTool()],
    system_prompt=subprocess.check_output(["ati", "prompt"], text=True),
)
question = " ".join(sys.argv[1:]) or TASK
for step in agent.stream({"messages": [("user", question)]}, {"recursion_limit": 40}, stream_mode="values"):
    message = step["messages"][-1]
    for call in getattr(message, "tool_calls", None) or []:
        print("$", *call["args"].values())
print(message.text)
