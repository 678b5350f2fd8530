// Asks the server `time` what time it is, and prints what it says.
//
//     npx --package assemblyscript asc what_time.ts -o what_time.wasm --runtime stub --optimize --use abort= --exportStart _start

import { callTool, exit, logInfo, openServer, print } from "./spear";

function main(): i32 {
  const server = openServer("time");
  if (server < 0) {
    logInfo("this task has no server `time`: error " + (-server).toString());
    return 1;
  }
  const result = callTool(server, "get_current_time", '{"timezone":"Asia/Tokyo"}');
  if (result === null) {
    logInfo("the call has failed");
    return 1;
  }
  print(result);
  return 0;
}

exit(main());
