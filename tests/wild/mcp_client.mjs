// A client of npm's MCP libraries. Its argument is JSON: which library, which era, how the server is
// reached. Prints what the server lists and answers, as JSON.
const job = JSON.parse(process.argv[2]);
const library = (name) => import(import.meta.resolve(name, `file://${job.modules}/`));

async function connect() {
  const info = { name: "wild", version: "1" };
  if (job.library === "sdk") {
    const { Client } = await library("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await library("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const { StdioClientTransport } = await library("@modelcontextprotocol/sdk/client/stdio.js");
    return [new Client(info), StreamableHTTPClientTransport, StdioClientTransport];
  }
  const { Client, StreamableHTTPClientTransport } = await library("@modelcontextprotocol/client");
  const { StdioClientTransport } = await library("@modelcontextprotocol/client/stdio");
  const mode = job.era === "stateless" ? { pin: "2026-07-28" } : "legacy";
  const client = new Client(info, { versionNegotiation: { mode } });
  return [client, StreamableHTTPClientTransport, StdioClientTransport];
}

const [client, Http, Stdio] = await connect();
const transport = job.url
  ? new Http(new URL(job.url), { requestInit: { headers: job.headers ?? {} } })
  : new Stdio({ command: job.command[0], args: job.command.slice(1), env: job.env, stderr: "ignore" });
await client.connect(transport);
const names = [];
let cursor;
do {
  const page = await client.listTools(cursor ? { cursor } : {});
  names.push(...page.tools.map((tool) => tool.name));
  cursor = page.nextCursor;
} while (cursor);
const answers = {};
for (const [name, args] of job.calls) {
  const { content, structuredContent, isError } = await client.callTool({ name, arguments: args });
  answers[name] = { content, structuredContent: structuredContent ?? null, isError: isError ?? false };
}
await client.close();
console.log(JSON.stringify({ names, answers, server: client.getServerVersion()?.name }));
process.exit(0);
