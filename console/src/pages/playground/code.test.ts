import { expect, test } from "vitest";
import { codeOf } from "./code";

const CALL = {
  origin: "https://tools.example.com",
  mcpUrl: "https://tools.example.com/api/mcp/t/review?tools=git.git_log",
  tool: "git.git_log",
  task: "review",
  args: { repo_path: "it's", deep: [{ on: true, off: null }], "": {} },
  needsKey: true,
};

test("curl has the key in a variable, and quotes what a shell would read", () => {
  expect(codeOf("curl", CALL)).toBe(`curl -sS \\
  'https://tools.example.com/api/v1/mcp/call?task=review&tools=git.git_log' \\
  -H "Authorization: Bearer $TOOLGATE_KEY" \\
  -H 'Content-Type: application/json' \\
  --data-raw '{
  "name": "git.git_log",
  "arguments": {
    "repo_path": "it'\\''s",
    "deep": [
      {
        "on": true,
        "off": null
      }
    ],
    "": {}
  }
}'`);
});

test("Python has Python's own constants, and no key where none is needed", () => {
  const code = codeOf("python", { ...CALL, needsKey: false });
  expect(code).toBe(`import asyncio

from mcp import Client

URL = "https://tools.example.com/api/mcp/t/review?tools=git.git_log"
ARGUMENTS = {
    "repo_path": "it's",
    "deep": [
        {
            "on": True,
            "off": None,
        },
    ],
    "": {},
}


async def main() -> None:
    async with Client(URL) as client:
        result = await client.call_tool("git.git_log", ARGUMENTS)
        print(result.model_dump_json(indent=2))


asyncio.run(main())`);
  expect(codeOf("python", CALL)).toContain("os.environ['TOOLGATE_KEY']");
});

test("TypeScript sets no prototype", () => {
  const args = JSON.parse('{"__proto__": "x"}');
  expect(codeOf("typescript", { ...CALL, args })).toContain('["__proto__"]: "x"');
});
