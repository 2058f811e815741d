#!/bin/sh
# Codex with ati: an MCP server's tools (DeepWiki).
#
#     npm install -g @openai/codex && codex login
#     examples/codex/mcp_agent.sh
#
# Codex is a shell agent already: AGENTS.md of this folder, which is `ati prompt`, teaches it ati.
# Where ATI_PROXY_URL is set, tools and their keys are on the proxy; otherwise they are those of
# ATI_DIR, by default this repository's manifests. Codex' own sandbox has no network unless it is
# allowed: the agent's only way out should be the edge, which a firewall around it sees to. Codex
# keeps variables with TOKEN in their name from its shell, unless it is told not to.
set -eu
cd "$(dirname "$0")"
export ATI_DIR="${ATI_DIR:-$(cd ../.. && pwd)}"
exec codex exec --skip-git-repo-check --sandbox workspace-write \
    -c sandbox_workspace_write.network_access=true \
    -c shell_environment_policy.ignore_default_excludes=true \
    "${*:-Which modules does the repository cloudflare/pingora have? Ask DeepWiki.}"
