/** A call as a program would make it: for a shell, for Python with the official MCP SDK, and for TypeScript. */
import { isObject, type Json, type JsonObject } from "@/parts/schema-form-model";

export interface CodedCall {
  /** Of the REST API, like `https://tools.example.com`. */
  readonly origin: string;
  /** Of the MCP endpoint, with task and tool selected. */
  readonly mcpUrl: string;
  readonly tool: string;
  /** Empty: none. */
  readonly task: string;
  readonly args: JsonObject;
  /** Whether the gateway wants a key, which is then in the variable `TOOLGATE_KEY`. */
  readonly needsKey: boolean;
}

export type Language = "curl" | "python" | "typescript";

export function codeOf(language: Language, call: CodedCall): string {
  return { curl, python, typescript }[language](call);
}

/** What else is needed to run it. */
export const NEEDS: Readonly<Record<Language, string>> = {
  curl: "A POSIX shell with `curl`.",
  python: "The official MCP SDK, version 2: `pip install mcp`.",
  typescript: "Node.js 22 or later. No packages.",
};

function restUrl({ origin, tool, task }: CodedCall): string {
  const query = new URLSearchParams({ ...(task ? { task } : {}), tools: tool });
  return `${origin}/api/v1/mcp/call?${query}`;
}

function curl(call: CodedCall): string {
  const body = JSON.stringify({ name: call.tool, arguments: call.args }, null, 2);
  return [
    "curl -sS \\",
    `  ${shellQuoted(restUrl(call))} \\`,
    ...(call.needsKey ? ['  -H "Authorization: Bearer $TOOLGATE_KEY" \\'] : []),
    "  -H 'Content-Type: application/json' \\",
    `  --data-raw ${shellQuoted(body)}`,
  ].join("\n");
}

function shellQuoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

function python(call: CodedCall): string {
  const tool = JSON.stringify(call.tool);
  const names = [`URL = ${JSON.stringify(call.mcpUrl)}`, `ARGUMENTS = ${literal(call.args, 0, PYTHON)}`];
  const use = [
    `result = await client.call_tool(${tool}, ARGUMENTS)`,
    "print(result.model_dump_json(indent=2))",
  ];
  if (!call.needsKey)
    return [
      "import asyncio\n",
      "from mcp import Client\n",
      ...names,
      "\n\nasync def main() -> None:",
      "    async with Client(URL) as client:",
      ...use.map((line) => `        ${line}`),
      "\n\nasyncio.run(main())",
    ].join("\n");
  return [
    "import asyncio",
    "import os\n",
    "import httpx2",
    "from mcp import Client",
    "from mcp.client.streamable_http import streamable_http_client\n",
    ...names,
    `HEADERS = {"Authorization": f"Bearer {os.environ['TOOLGATE_KEY']}"}`,
    "\n\nasync def main() -> None:",
    "    async with httpx2.AsyncClient(headers=HEADERS, timeout=300) as http:",
    "        async with Client(streamable_http_client(URL, http_client=http)) as client:",
    ...use.map((line) => `            ${line}`),
    "\n\nasyncio.run(main())",
  ].join("\n");
}

function typescript(call: CodedCall): string {
  return [
    `const url = ${JSON.stringify(restUrl(call))};`,
    "const call = {",
    `  name: ${JSON.stringify(call.tool)},`,
    `  arguments: ${literal(call.args, 1, TYPESCRIPT)},`,
    "};",
    "const response = await fetch(url, {",
    '  method: "POST",',
    "  headers: {",
    ...(call.needsKey ? [`    Authorization: \`Bearer \${process.env.TOOLGATE_KEY}\`,`] : []),
    '    "Content-Type": "application/json",',
    "  },",
    "  body: JSON.stringify(call),",
    "});",
    "const body = await response.json();",
    `if (!response.ok) throw new Error(\`\${body.error.code}: \${body.error.message}\`);`,
    "console.log(JSON.stringify(body.result, null, 2));",
  ].join("\n");
}

/** How a language writes the values that are not texts or numbers, and the name of a member. */
interface Spelling {
  readonly words: Readonly<Record<string, string>>;
  readonly step: string;
  readonly nameOf: (name: string) => string;
}

const PYTHON: Spelling = {
  words: { null: "None", true: "True", false: "False" },
  step: "    ",
  nameOf: (name) => JSON.stringify(name),
};
const TYPESCRIPT: Spelling = {
  words: {},
  step: "  ",
  // In a literal, this name alone would set the prototype.
  nameOf: (name) => (name === "__proto__" ? '["__proto__"]' : JSON.stringify(name)),
};

function literal(value: Json, depth: number, spelling: Spelling): string {
  const inner = spelling.step.repeat(depth + 1);
  const end = spelling.step.repeat(depth);
  if (Array.isArray(value)) {
    if (value.length === 0) return "[]";
    const items = value.map((one) => `${inner}${literal(one, depth + 1, spelling)},`);
    return `[\n${items.join("\n")}\n${end}]`;
  }
  if (isObject(value)) {
    const members = Object.entries(value).map(
      ([name, one]) => `${inner}${spelling.nameOf(name)}: ${literal(one, depth + 1, spelling)},`,
    );
    return members.length === 0 ? "{}" : `{\n${members.join("\n")}\n${end}}`;
  }
  const text = JSON.stringify(value);
  return spelling.words[text] ?? text;
}
