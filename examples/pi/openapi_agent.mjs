// Pi with ati: tools of OpenAPI and HTTP (Crossref, arXiv, Hacker News).
//
//     npm install
//     export ANTHROPIC_API_KEY=...
//     node openapi_agent.mjs
//
// The agent has a shell and nothing else. Where ATI_PROXY_URL is set, its tools and their keys are
// on the proxy; otherwise they are those of ATI_DIR, by default this repository's manifests.

import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { Agent } from "@mariozechner/pi-agent-core";
import { getModel } from "@mariozechner/pi-ai";
import { createBashTool } from "@mariozechner/pi-coding-agent";

process.env.ATI_DIR ??= fileURLToPath(new URL("../..", import.meta.url));
const task = process.argv.slice(2).join(" ") || "Find a paper about proxies on Crossref and on arXiv, and the top story of Hacker News.";

const model = getModel("anthropic", process.env.ANTHROPIC_MODEL ?? "claude-sonnet-4-5");
const agent = new Agent({
  initialState: {
    systemPrompt: execFileSync("ati", ["prompt"], { encoding: "utf8" }),
    model: { ...model, baseUrl: process.env.ANTHROPIC_BASE_URL ?? model.baseUrl },
    tools: [createBashTool(process.cwd())],
  },
});
agent.subscribe((event) => {
  if (event.type === "tool_execution_start") console.log(`$ ${event.args.command}`);
});
await agent.prompt(task);

const last = agent.state.messages.at(-1);
if (last.errorMessage) throw new Error(last.errorMessage);
console.log(last.content.map((block) => block.text ?? "").join(""));
