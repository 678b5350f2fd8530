/** How the console is built: hashed files below `/console/`, each with a compressed twin for the gateway to send. */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";
import { guides } from "./guides.ts";

const OUT = join(import.meta.dirname, "..", "build", "console");

/** Write `<file>.br` and `<file>.gz` beside every file that is text, but the page itself, which is never the same twice. */
function precompress(): Plugin {
  return {
    name: "precompress",
    apply: "build",
    writeBundle({ dir = OUT }) {
      const files = readdirSync(dir, { recursive: true, encoding: "utf8" });
      for (const name of files.filter((one) => /\.(js|css|svg)$/.test(one))) {
        const content = readFileSync(join(dir, name));
        writeFileSync(join(dir, `${name}.br`), brotliCompressSync(content));
        writeFileSync(join(dir, `${name}.gz`), gzipSync(content, { level: 9 }));
      }
    },
  };
}

export default defineConfig({
  base: "/console/",
  resolve: { alias: { "@": join(import.meta.dirname, "src") } },
  plugins: [guides(), react(), precompress()],
  build: {
    outDir: OUT,
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  server: {
    proxy: Object.fromEntries(
      ["/api", "/admin", "/v1", "/healthz", "/openapi.json"].map((path) => [
        path,
        { target: "http://127.0.0.1:8080", changeOrigin: true },
      ]),
    ),
  },
  test: { include: ["src/**/*.test.ts"], environment: "node", isolate: false },
});
