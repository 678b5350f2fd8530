"""A small OpenID Connect issuer on loopback: discovery, keys, and tokens signed by them."""

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode

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
        self.metadata: Json = {
            "issuer": url,
            "jwks_uri": f"{url}/keys",
            "authorization_endpoint": f"{url}/authorize",
            "token_endpoint": f"{url}/token",
            "registration_endpoint": f"{url}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }
        self.status = 200
        self.headers: dict[str, str] = {}
        self.padding = 0
        self.asked: list[str] = []
        self.wanted_for: list[str] = []
        """What tokens were asked for, at the token endpoint."""
        self.asks: dict[str, Json] = {}
        """Whom browsers were sent here for, by the code they were sent back with; each is good once."""
        self.issued: list[str] = []
        """All tokens, good or not."""
        self.gives: Json = {}
        """What such a code earns, instead of an access token for us."""

    def token(
        self, *, kid: str | None = "first", headers: Mapping[str, Any] | None = None, **claims: Any
    ) -> str:
        """A good token, but for what is said otherwise; a claim of None is left out."""
        key = self.keys[kid or "first"]
        named = {} if kid is None else {"kid": kid}
        token = jwt.encode(
            self.claims(**claims), key, algorithm=algorithm_of(key), headers={**named, **(headers or {})}
        )
        self.issued.append(token)
        return token

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

    def authorize(self, query: Mapping[str, str]) -> str:
        """Where a browser is sent back to that came with `query`: its user agrees at once."""
        code = f"code-{len(self.asks)}"
        self.asks[code] = dict(query)
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def accept(self, path: str, body: str) -> tuple[int, Any]:
        """What a POST is answered with: any client may register, and `agreed` is always good for a token."""
        if path == "/register":
            return 201, json.loads(body) | {"client_id": "client"}
        form = dict(parse_qsl(body))
        if form["code"] == "agreed":
            self.wanted_for.append(form["resource"])
        elif not is_answered(self.asks.pop(form["code"], {}), form):
            return 400, {"error": "invalid_grant"}
        given = {"access_token": self.token(), "token_type": "Bearer", "expires_in": 600}
        return 200, self.gives or given

    def document(self, path: str) -> Any:
        if path != "/keys":
            return self.metadata
        published = [jwk_of(key) | {"kid": kid, "use": "sig"} for kid, key in self.keys.items()]
        return {"keys": [*published, *self.extra_keys]}


def is_answered(asked: Mapping[str, str], form: Mapping[str, str]) -> bool:
    """Whether who hands in a code is who began (RFC 6749, section 4.1.3; RFC 7636, section 4.6)."""
    digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
    return (
        bool(asked)
        and asked["code_challenge_method"] == "S256"
        and asked["code_challenge"] == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        and all(asked[name] == form.get(name) for name in ("client_id", "redirect_uri"))
        and form["grant_type"] == "authorization_code"
    )


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
            place, _, query = self.path.partition("?")
            if place == "/authorize":
                self.send_response(302)
                self.send_header("location", issuer.authorize(dict(parse_qsl(query))))
                self.end_headers()
                return
            is_known = self.path in {"/.well-known/openid-configuration", "/keys"}
            self._answer(issuer.status if is_known else 404, issuer.document(self.path))

        def do_POST(self) -> None:
            sent = self.rfile.read(int(self.headers["content-length"])).decode()
            self._answer(*issuer.accept(self.path, sent))

        def _answer(self, status: int, document: Any) -> None:
            body = json.dumps(document).encode() + b" " * issuer.padding
            self.send_response(status)
            self.send_header("content-type", "application/json")
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
