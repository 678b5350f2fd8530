/** The request of an import. */
import { api, take } from "@/api/client";
import type { Format, ImportResponse } from "./imports";

/** All that decides what an import does. */
export interface ImportAsked {
  readonly content: string;
  readonly format: Format;
  readonly allowed_tools: readonly string[];
  readonly only: readonly string[] | null;
}

/** Without a plan it is a dry run. */
export function sendImport(asked: ImportAsked, plan: string | null): Promise<ImportResponse> {
  return take(
    api.POST("/admin/api/mcp/servers/import", {
      params: { header: plan === null ? undefined : { "Toolgate-Plan": plan } },
      body: {
        content: asked.content,
        format: asked.format,
        allowed_tools: [...asked.allowed_tools],
        only: asked.only === null ? null : [...asked.only],
        skip_invalid: true,
        dry_run: plan === null,
      },
    }),
  );
}
