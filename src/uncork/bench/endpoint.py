"""Where requests go: URL, address, headers, TLS."""

import ssl
from typing import Any
from urllib.parse import urlsplit

import msgspec

from uncork.errors import BadInput

REDACTED = "(redacted)"
_SECRET = ("authorization", "api-key", "x-api-key", "cookie", "token")


class Endpoint(msgspec.Struct, frozen=True):
    """One server: `base` is the path before /v1/…, mostly empty."""

    host: str
    port: int
    tls: bool
    base: str

    @property
    def authority(self) -> str:
        """host:port as it stands in a Host header."""
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{name}:{self.port}"

    @property
    def url(self) -> str:
        """The endpoint as a person writes it, without credentials."""
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.base}"


def parse_endpoints(text: str) -> tuple[Endpoint, ...]:
    """Endpoints from comma-separated URLs; a trailing /v1 is dropped. Raises `BadInput`."""
    found = tuple(_parse(part.strip()) for part in text.split(",") if part.strip())
    if not found:
        raise BadInput(
            "No endpoint was given; nothing was sent.", next="uncork bench --endpoint http://127.0.0.1:8000"
        )
    return found


def _parse(text: str) -> Endpoint:
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        port = url.port
    except ValueError:
        url, port = urlsplit(""), -1
    if url.scheme not in ("http", "https") or not url.hostname or port == -1:
        raise BadInput(
            f"{text!r} is not an http or https address; nothing was sent.",
            next="uncork bench --endpoint http://127.0.0.1:8000",
        )
    base = url.path.rstrip("/").removesuffix("/v1")
    tls = url.scheme == "https"
    return Endpoint(url.hostname, port or (443 if tls else 80), tls, base)


def redact_headers(headers: dict[str, str]) -> dict[str, str]:
    """Headers as they may be stored: the value of anything that looks like a credential is left out."""
    return {
        name: REDACTED if any(word in name.lower() for word in _SECRET) else value
        for name, value in headers.items()
    }


def tls_context(insecure: bool) -> ssl.SSLContext:
    """A client TLS context; verification is off only where it was asked for."""
    context = ssl.create_default_context()
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def ask(
    endpoint: Endpoint,
    path: str,
    body: Any = None,
    *,
    headers: dict[str, str] | None = None,
    insecure: bool = False,
    timeout_s: float = 10.0,
) -> tuple[int, Any]:
    """One plain request outside any measurement: status and decoded JSON (None where it is not JSON).

    Raises OSError where nothing answers.
    """
    import http.client

    if endpoint.tls:
        context = tls_context(insecure)
        link: http.client.HTTPConnection = http.client.HTTPSConnection(
            endpoint.host, endpoint.port, timeout=timeout_s, context=context
        )
    else:
        link = http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=timeout_s)
    try:
        payload = None if body is None else msgspec.json.encode(body)
        sent = {"Content-Type": "application/json", **(headers or {})}
        link.request("GET" if body is None else "POST", endpoint.base + path, payload, sent)
        answer = link.getresponse()
        raw = answer.read(16 << 20)
    except http.client.HTTPException as error:
        raise ConnectionError(f"{endpoint.url} does not speak HTTP: {type(error).__name__}") from error
    finally:
        link.close()
    try:
        return answer.status, msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return answer.status, None
