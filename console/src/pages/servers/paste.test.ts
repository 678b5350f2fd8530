import { describe, expect, it } from "vitest";
import { recognise } from "./paste";
import { idOfCommand, idOfUrl, proposeId } from "./proposed-id";

const ENV = (name: string) => `$${`{ENV:${name}}`}`;

describe("recognise", () => {
  it("splits a command with variables in front and quotes, as a shell would", () => {
    expect(recognise(`KEY=value TWO='a b' npx -y @scope/thing "one two"`)).toMatchObject({
      kind: "command",
      body: {
        transport: "stdio",
        stdio: { command: "npx", args: ["-y", "@scope/thing", "one two"], env: { KEY: "value", TWO: "a b" } },
      },
    });
  });

  it("takes a prompt and line continuations away, and refers to variables", () => {
    expect(recognise("$ docker run \\\n  -e TOKEN=$GITHUB_TOKEN image")).toMatchObject({
      body: { stdio: { command: "docker", args: ["run", "-e", `TOKEN=${ENV("GITHUB_TOKEN")}`, "image"] } },
    });
  });

  it("takes what is left to the reader as one word", () => {
    expect(recognise("TOKEN=<your token> npx x --id <an id>")).toMatchObject({
      body: { stdio: { command: "npx", args: ["x", "--id", "<an id>"], env: { TOKEN: "<your token>" } } },
    });
  });

  it("tells URLs, and those of the old transport", () => {
    expect(recognise(" https://mcp.example.com/mcp ")).toMatchObject({
      kind: "url",
      body: { transport: "streamable_http", http: { url: "https://mcp.example.com/mcp" } },
    });
    expect(recognise("http://localhost:3000/sse")).toMatchObject({ body: { transport: "http_sse_legacy" } });
  });

  it("understands what clients are told to add", () => {
    expect(recognise("claude mcp add --transport http linear https://mcp.linear.app/mcp")).toMatchObject({
      kind: "url",
      name: "linear",
      body: { http: { url: "https://mcp.linear.app/mcp" } },
    });
    expect(recognise("claude mcp add files -e A=b -- npx -y files .")).toMatchObject({
      name: "files",
      body: { stdio: { command: "npx", args: ["-y", "files", "."], env: { A: "b" } } },
    });
  });

  it("frames what a README shows without its frame, and leaves files alone", () => {
    const one = { command: "npx", args: ["-y", "server-git"] };
    const framed = { mcpServers: { git: one } };
    expect(recognise(JSON.stringify(one))).toEqual({ kind: "file", text: JSON.stringify(framed) });
    expect(recognise(`"git": ${JSON.stringify(one)},`)).toEqual({
      kind: "file",
      text: JSON.stringify(framed),
    });
    expect(recognise(JSON.stringify({ git: one }))).toEqual({ kind: "file", text: JSON.stringify(framed) });
    expect(recognise('{ "mcpServers": {} } // mine')).toMatchObject({ text: '{ "mcpServers": {} } // mine' });
    expect(recognise('[mcp_servers.git]\ncommand = "uvx"')).toMatchObject({ kind: "file" });
  });

  it("says what it cannot read", () => {
    expect(recognise("  ")).toEqual({ kind: "nothing" });
    expect(recognise("npx 'oops")).toMatchObject({ kind: "unclear", problem: "A quote is not closed." });
    expect(recognise("one\ntwo")).toMatchObject({ kind: "unclear" });
    expect(recognise("KEY=value")).toMatchObject({ kind: "unclear" });
  });
});

describe("IDs", () => {
  it.each([
    ["npx -y @modelcontextprotocol/server-everything", "everything"],
    ["npx -y @upstash/context7-mcp@latest", "context7"],
    ["npx @playwright/mcp@1.2", "playwright"],
    ["uvx mcp-server-git==1.0 --repository .", "git"],
    ["docker run -i --rm -e TOKEN ghcr.io/github/github-mcp-server:v1", "github"],
    ["node /srv/shop/dist/index.js", "shop"],
    ["/usr/bin/python3 -I /srv/tally_server.py", "tally"],
    ["serve", "serve"],
    ["npx", "npx"],
  ])("names what %s starts", (line, id) => expect(idOfCommand(line.split(" "))).toBe(id));

  it.each([
    ["https://mcp.linear.app/mcp", "linear"],
    ["https://example.com/mcp", "example"],
    ["http://localhost:3000/sse", "localhost"],
    ["http://127.0.0.1:9/mcp", "server"],
    ["http://[::1]/mcp", "server"],
  ])("names the host of %s", (url, id) => expect(idOfUrl(url)).toBe(id));

  it("proposes one that is free", () => {
    const body = {
      transport: "streamable_http",
      http: { url: "https://mcp.linear.app/mcp", headers: {} },
    } as const;
    expect(proposeId(body, "", new Set())).toBe("linear");
    expect(proposeId(body, "", new Set(["linear", "linear-2"]))).toBe("linear-3");
    expect(proposeId(body, "My Linear", new Set())).toBe("my-linear");
  });
});
