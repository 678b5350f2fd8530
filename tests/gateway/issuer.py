"""A small OpenID Connect issuer on loopback: discovery, keys, and tokens signed by them."""

import base64
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "https://tools.example/api/mcp"
Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
Json = dict[str, Any]


@cache
def rsa_key(bits: int = 2_048, number: int = 0) -> rsa.RSAPrivateKey:
    """The same one for the same numbers: making one takes long."""
    return rsa.generate_private_key(65_537, bits)


class Issuer:
    """What it publishes can be changed while it serves."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.keys: dict[str, Private] = {"first": rsa_key()}
        self.extra_keys: list[Any] = []
        """Entries of the key document that stand there as they are."""
        self.metadata: Json = {"issuer": url, "jwks_uri": f"{url}/keys"}
        self.status = 200
        self.headers: dict[str, str] = {}
        self.padding = 0
        self.asked: list[str] = []

    def token(
        self, *, kid: str | None = "first", headers: Mapping[str, Any] | None = None, **claims: Any
    ) -> str:
        """A good token, but for what is said otherwise; a claim of None is left out."""
        key = self.keys[kid or "first"]
        named = {} if kid is None else {"kid": kid}
        return jwt.encode(
            self.claims(**claims), key, algorithm=algorithm_of(key), headers={**named, **(headers or {})}
        )

    def claims(self, **claims: Any) -> Json:
        now = int(time.time())
        good = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "ada",
            "iat": now,
            "exp": now + 600,
            "roles": ["agents"],
        }
        return {name: value for name, value in (good | claims).items() if value is not None}

    def document(self, path: str) -> Any:
        if path == "/.well-known/openid-configuration":
            return self.metadata
        published = [jwk_of(key) | {"kid": kid, "use": "sig"} for kid, key in self.keys.items()]
        return {"keys": [*published, *self.extra_keys]}


def algorithm_of(key: Private) -> str:
    match key:
        case rsa.RSAPrivateKey():
            return "RS256"
        case ec.EllipticCurvePrivateKey():
            return {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}[key.curve.name]
    return "EdDSA"


def jwk_of(key: Private) -> Json:
    """The public half, as an issuer publishes it."""
    match key:
        case rsa.RSAPrivateKey():
            return dict(RSAAlgorithm.to_jwk(key.public_key(), as_dict=True))
        case ec.EllipticCurvePrivateKey():
            return dict(ECAlgorithm.to_jwk(key.public_key(), as_dict=True))
    return dict(OKPAlgorithm.to_jwk(key.public_key(), as_dict=True))


def forged(header: Any, claims: Any, signature: bytes = b"") -> str:
    """A token by hand."""
    parts = [json.dumps(header).encode(), json.dumps(claims).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@contextmanager
def serving_issuer() -> Iterator[Issuer]:
    """An issuer while it serves."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked.append(self.path)
            body = json.dumps(issuer.document(self.path)).encode() + b" " * issuer.padding
            self.send_response(issuer.status)
            for name, value in issuer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        issuer = Issuer(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()
