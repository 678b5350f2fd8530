import { expect, test } from "vitest";
import { ApiError } from "@/api/error";
import { loginProblem } from "./problem";

const titleOf = (status: number, message = "the request failed") =>
  loginProblem(new ApiError(status, "some_code", message, "")).title;

test("failures of a login are said in words, without codes", () => {
  expect([0, 401, 429, 503].map((status) => titleOf(status))).toEqual([
    "The gateway does not respond",
    "Unknown or revoked key",
    "Too many failed logins from your address",
    "The gateway cannot check your login now",
  ]);
  expect(titleOf(401, "the token is for another audience")).toBe("The token is for another audience.");
  expect(titleOf(403, "role `node` may not do this")).toBe("Role `node` may not do this.");
});

test("what is not of the gateway is said as it is", () => {
  expect(loginProblem(new Error("This login was not started in this tab.")).title).toBe(
    "This login was not started in this tab.",
  );
});
