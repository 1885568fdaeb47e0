"""What answers at an endpoint: which dialect, which model."""

from uncork.bench.endpoint import Endpoint, ask
from uncork.bench.spec import SuiteSpec
from uncork.errors import BadInput, NoServer


def find_model(endpoint: Endpoint, spec: SuiteSpec) -> str:
    """The model to ask for: the one named, else the first of /v1/models ("" where the server lists none).

    Raises `NoServer` where nothing answers, `BadInput` where the server asks for a key.
    """
    try:
        status, listed = ask(endpoint, "/v1/models", headers=spec.headers, insecure=spec.insecure)
    except OSError as error:
        raise NoServer(
            f"No inference server answers at {endpoint.url} ({error.strerror or error}); nothing was measured.",
            next="start the server, or give its address with --endpoint; "
            "uncork bench --self-test needs no server",
        ) from error
    if status in (401, 403):
        raise BadInput(
            f"{endpoint.url} asks for a key (HTTP {status}); nothing was sent.",
            next="uncork bench --header 'Authorization: Bearer KEY' ...",
        )
    names = _names(listed)
    if spec.model or not names:
        return spec.model
    return names[0]


def _names(listed: object) -> list[str]:
    data = listed.get("data") if isinstance(listed, dict) else None
    items = data if isinstance(data, list) else []
    return [str(item["id"]) for item in items if isinstance(item, dict) and "id" in item]


def find_api(endpoint: Endpoint, spec: SuiteSpec) -> str:
    """The dialect to use: the one named, else chat where /v1/models answers, else TGI or Ollama by their marks."""
    if spec.api != "auto":
        return spec.api
    marks = (("/v1/models", "chat"), ("/api/version", "ollama"), ("/info", "tgi"))
    for path, name in marks:
        try:
            status, _ = ask(endpoint, path, headers=spec.headers, insecure=spec.insecure)
        except OSError:
            continue
        if status == 200:
            return name
    return "chat"
