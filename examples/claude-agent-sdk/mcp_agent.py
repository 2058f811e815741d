"""Claude Agent SDK with ati: an MCP server's tools (DeepWiki).

    pip install -r requirements.txt
    export ANTHROPIC_API_KEY=...
    python mcp_agent.py

The agent has a shell and nothing else. Where ATI_PROXY_URL is set, its tools and their keys are on
the proxy; otherwise they are those of ATI_DIR, by default this repository's manifests.
"""

import asyncio
import os
import pathlib
import subprocess
import sys

from claude_agent_sdk import AssistantMessage, ClaudeAgentOptions, ResultMessage, TextBlock, ToolUseBlock, query

ATI_DIR = os.environ.get("ATI_DIR", str(pathlib.Path(__file__).resolve().parents[2]))
TASK = "Which modules does the repository cloudflare/pingora have? Ask DeepWiki."


async def main() -> None:
    options = ClaudeAgentOptions(
        system_prompt=subprocess.check_output(["ati", "prompt"], text=True),
        allowed_tools=["Bash"],
        env={"ATI_DIR": ATI_DIR},
        setting_sources=[],
        max_turns=20,
    )
    async for message in query(prompt=" ".join(sys.argv[1:]) or TASK, options=options):
        if isinstance(message, AssistantMessage):
            for block in message.content:
                if isinstance(block, ToolUseBlock):
                    print(f"$ {block.input.get('command', block.input)}")
                elif isinstance(block, TextBlock):
                    print(block.text)
        elif isinstance(message, ResultMessage) and message.is_error:
            sys.exit(f"the agent failed: {message.result}")


asyncio.run(main())
