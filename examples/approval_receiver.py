"""A receiver of the approval webhook: denies calls that no one should make, and leaves the rest to people.

    python approval_receiver.py SECRET_FILE [PORT]

It listens on this machine. What is called `delete…` is denied at once; of anything else it takes note and
prints the command that decides on it.
"""

import hashlib
import hmac
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

FIVE_MINUTES: Final = 300


def sign(secret: bytes, body: bytes, at_s: int) -> str:
    """The header `Toolgate-Signature`: for what we get, and for what we send to a `decision_url`."""
    mac = hmac.new(secret, str(at_s).encode() + b"." + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={mac}"


def is_from_toolgate(secret: bytes, body: bytes, signature: str) -> bool:
    at = signature.partition(",")[0].removeprefix("t=")
    if not at.isdecimal() or abs(time.time() - int(at)) > FIVE_MINUTES:
        return False
    return hmac.compare_digest(sign(secret, body, int(at)), signature)


def decide(asked: dict[str, Any]) -> dict[str, str]:
    """Empty: a person decides, later."""
    if asked["tool"].startswith("delete"):
        return {"decision": "denied", "reason": "nothing is deleted by machines here", "by": "house rule"}
    print(f"{asked['principal']} waits: toolgate approvals approve {asked['approval_id']}", flush=True)
    return {}


def serve(secret: bytes, port: int) -> None:
    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if not is_from_toolgate(secret, body, self.headers.get("toolgate-signature", "")):
                self.send_error(401)
                return
            answer = json.dumps(decide(json.loads(body))).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    with ThreadingHTTPServer(("127.0.0.1", port), Receiver) as server:
        print(f"http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    serve(Path(sys.argv[1]).read_bytes().strip(), int(sys.argv[2]) if len(sys.argv) == 3 else 9000)
