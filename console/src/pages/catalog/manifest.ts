/** The manifest of a skill that was written with the picked tools. */

export interface Skill {
  readonly id: string;
  readonly name: string;
  readonly tools: readonly string[];
}

const ID = /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?$/;

/** What is wrong with an id; empty: nothing. */
export function idTrouble(id: string): string {
  if (id === "") return "Enter an ID.";
  return ID.test(id)
    ? ""
    : "Use up to 64 letters, digits, `.`, `-` and `_`, with a letter or digit at both ends.";
}

function membersOf({ id, name, tools }: Skill) {
  return name.trim() === "" ? { id, tools } : { id, name: name.trim(), tools };
}

export function toJson(skill: Skill): string {
  return `${JSON.stringify(membersOf(skill), null, 2)}\n`;
}

export function toToml(skill: Skill): string {
  const { tools, ...texts } = membersOf(skill);
  const lines = Object.entries(texts).map(([name, text]) => `${name} = ${quoted(text)}`);
  return [...lines, "tools = [", ...tools.map((one) => `  ${quoted(one)},`), "]", ""].join("\n");
}

/** A TOML basic string: as in JSON, but with DEL escaped and lone surrogates replaced. */
function quoted(text: string): string {
  const whole = [...text].map((one) => (/^[\ud800-\udfff]$/.test(one) ? "\ufffd" : one)).join("");
  return JSON.stringify(whole).replaceAll("\u007f", "\\u007f");
}

/** The name of the file to save it as. */
export function fileOf(id: string, format: "json" | "toml"): string {
  return `${idTrouble(id) === "" ? id : "skill"}.${format}`;
}
