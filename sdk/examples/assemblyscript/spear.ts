// What this example needs of the host, declared as AssemblyScript has it, with texts for pointers and lengths.
// All there is, and what each result means, stands in sdk/c/toolgate.h.

@external("spear", "log")
declare function log(level: i32, text: usize, length: usize): i32;
@external("spear", "mcp_open")
declare function mcp_open(serverId: usize, length: usize): i32;
@external("spear", "mcp_call_tool")
declare function mcp_call_tool(
  fd: i32, tool: usize, toolLength: usize, args: usize, argsLength: usize, out: usize, outLength: usize,
): i32;
@external("wasi_snapshot_preview1", "fd_write")
declare function fd_write(fd: i32, pieces: usize, count: i32, written: usize): i32;
@external("wasi_snapshot_preview1", "proc_exit")
declare function proc_exit(code: i32): void;

const ENOSPC: i32 = 28;
const INFO: i32 = 2;

export function logInfo(text: string): void {
  const bytes = String.UTF8.encode(text);
  log(INFO, changetype<usize>(bytes), bytes.byteLength);
}

/** A descriptor, or an error below zero. */
export function openServer(serverId: string): i32 {
  const bytes = String.UTF8.encode(serverId);
  return mcp_open(changetype<usize>(bytes), bytes.byteLength);
}

/** The result as JSON, or null where there is none. The tool is called once, however large its result is. */
export function callTool(fd: i32, tool: string, args: string): string | null {
  const name = String.UTF8.encode(tool);
  const given = String.UTF8.encode(args);
  const length = new StaticArray<u32>(1);
  let room: u32 = 4096;
  while (true) {
    const out = new ArrayBuffer(room);
    length[0] = room;
    const result = mcp_call_tool(
      fd, changetype<usize>(name), name.byteLength, changetype<usize>(given), given.byteLength,
      changetype<usize>(out), changetype<usize>(length),
    );
    if (result >= 0) return String.UTF8.decodeUnsafe(changetype<usize>(out), result);
    if (result != -ENOSPC) return null;
    room = length[0];
  }
}

/** A line of standard output. */
export function print(line: string): void {
  const bytes = String.UTF8.encode(line + "\n");
  const piece = StaticArray.fromArray<usize>([changetype<usize>(bytes), bytes.byteLength]);
  const written = new StaticArray<u32>(1);
  fd_write(1, changetype<usize>(piece), 1, changetype<usize>(written));
}

export function exit(code: i32): void {
  proc_exit(code);
}
