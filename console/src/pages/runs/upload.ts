/** A module on its way to the gateway: whole where it is small, else part by part. */
import { api, type Shapes, take } from "@/api/client";
import { hex, PART_BYTES, partsOf } from "./parts";

const MAX_BYTES = 32 * 1024 * 1024;

/** Upload `file`; `onProgress` receives the uploaded share, from 0 to 1. */
export async function uploadModule(
  file: Blob,
  onProgress: (share: number) => void,
): Promise<Shapes["ModuleUploaded"]> {
  if (file.size > MAX_BYTES) throw new Error("The module exceeds the limit of 32 MiB.");
  onProgress(0);
  if (file.size <= PART_BYTES) return sendWhole(await file.arrayBuffer());
  if (!window.isSecureContext)
    throw new Error("Modules over 4 MiB need HTTPS, or `toolgate modules upload`.");
  const content = await file.arrayBuffer();
  const sha256 = hex(new Uint8Array(await crypto.subtle.digest("SHA-256", content)));
  const parts = partsOf(content.byteLength);
  const there = new Set(
    (await take(api.GET("/api/uploads/{sha256}", { params: { path: { sha256 } } }))).parts,
  );
  for (const [place, { begin, end }] of parts.entries()) {
    if (!there.has(place + 1)) await sendPart(sha256, place + 1, content.slice(begin, end));
    onProgress((place + 1) / (parts.length + 1));
  }
  return take(
    api.POST("/admin/api/modules/{sha256}", { params: { path: { sha256 } }, body: { parts: parts.length } }),
  );
}

function sendWhole(content: ArrayBuffer) {
  return take(
    api.POST("/admin/api/modules", {
      body: content,
      bodySerializer: (body) => body as ArrayBuffer,
      headers: { "Content-Type": "application/wasm" },
    }),
  );
}

function sendPart(sha256: string, part: number, content: ArrayBuffer) {
  return take(
    api.PUT("/api/uploads/{sha256}/{part}", {
      params: { path: { sha256, part: String(part) } },
      body: content,
      bodySerializer: (body) => body as ArrayBuffer,
      headers: { "Content-Type": "application/octet-stream" },
    }),
  );
}
