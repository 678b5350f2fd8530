/** How a file is cut for its way, and named by its digest. */

/** As the gateway takes it at once. */
export const PART_BYTES = 4 * 1024 * 1024;

/** Where each part begins and ends. */
export function partsOf(size: number, partBytes: number = PART_BYTES): { begin: number; end: number }[] {
  const parts = [];
  for (let begin = 0; begin < size; begin += partBytes)
    parts.push({ begin, end: Math.min(size, begin + partBytes) });
  return parts;
}

export function hex(bytes: Uint8Array): string {
  return [...bytes].map((one) => one.toString(16).padStart(2, "0")).join("");
}
