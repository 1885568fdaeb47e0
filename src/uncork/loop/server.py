"""Which inference server the loop measures: the one that was named, or one found in the process table."""

import http.client
import urllib.parse
from pathlib import Path
from typing import Any

import msgspec

from uncork.errors import BadInput, NoServer
from uncork.explorers.engine import explore
from uncork.host import Host
from uncork.model.unknown import is_unknown

TIMEOUT_S = 5.0


class Server(msgspec.Struct, frozen=True):
    """A running inference server; `how` says why it was taken: named, found or demo."""

    kind: str
    endpoint: str
    model: str
    model_path: str = ""  # a folder or GGUF file on this machine, empty where unknown
    pid: int = 0
    tensor_parallel: int = 1
    how: str = "named"


def named_server(endpoint: str, model: str = "", model_path: str = "") -> Server:
    """The server at a URL, asked for its model where none is given. Raises `BadInput`, `NoServer`."""
    parts = urllib.parse.urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadInput(
            f"{endpoint!r} is no http(s) URL; nothing was measured.", next="--endpoint http://HOST:PORT"
        )
    endpoint = endpoint.rstrip("/").removesuffix("/v1")
    return Server(
        kind="named", endpoint=endpoint, model=model or served_model(endpoint), model_path=model_path
    )


def found_server(host: Host, model: str = "") -> Server | None:
    """The first server in the process table that answers; None where none does."""
    servers = explore(host).servers
    if is_unknown(servers):
        return None
    for one in servers:
        if is_unknown(one.endpoint):
            continue
        try:
            name = model or served_model(one.endpoint)
        except NoServer:
            continue
        path = "" if is_unknown(one.model) else one.model
        return Server(
            kind=one.kind,
            endpoint=one.endpoint,
            model=name,
            model_path=path if Path(path).exists() and path else "",
            pid=one.pid,
            tensor_parallel=_number(one.flags.get("tensor-parallel-size", "1")),
            how="found in the process table",
        )
    return None


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and int(text) > 0 else 1


def served_model(endpoint: str) -> str:
    """The first model that the server lists at /v1/models. Raises `NoServer`."""
    answer = _get_json(endpoint, "/v1/models")
    try:
        return str(answer["data"][0]["id"])
    except (KeyError, IndexError, TypeError) as error:
        raise NoServer(
            f"{endpoint} answers, but lists no model at /v1/models; nothing was measured.",
            next="name the model: --model NAME",
        ) from error


def _get_json(endpoint: str, path: str) -> Any:
    parts = urllib.parse.urlsplit(endpoint)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", parts.path + path)
        return msgspec.json.decode(connection.getresponse().read())
    except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
        raise NoServer(
            f"No inference server answers at {endpoint} ({error}); nothing was measured.",
            next="start the server, or try the loop on a small one: uncork run --demo",
        ) from error
    finally:
        connection.close()
