import { expect, test } from "vitest";
import { fileOf, idTrouble, toJson, toToml } from "./manifest";

test("a manifest is TOML or JSON of the same skill", () => {
  const skill = { id: "standup", name: 'Say "hi"\u007f\n', tools: ["git.git_log", "time.now"] };
  expect(JSON.parse(toJson(skill))).toEqual({ ...skill, name: 'Say "hi"\u007f' });
  expect(toToml(skill)).toBe(
    'id = "standup"\nname = "Say \\"hi\\"\\u007f"\ntools = [\n  "git.git_log",\n  "time.now",\n]\n',
  );
  expect(toToml({ ...skill, name: "\ud800" })).toContain('name = "\ufffd"');
  expect(JSON.parse(toJson({ ...skill, name: " " }))).toEqual({ id: "standup", tools: skill.tools });
});

test.each(["", "-a", "a b", "a/b", "../x", "a".repeat(65)])("%j is no id of a skill", (id) => {
  expect(idTrouble(id)).not.toBe("");
  expect(fileOf(id, "toml")).toBe("skill.toml");
});
