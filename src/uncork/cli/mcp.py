"""uncork mcp."""

from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def mcp(
    allow_apply: Annotated[
        bool, typer.Option("--allow-apply", help="Add the tools that can write to the host.")
    ] = False,
    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP on loopback instead of stdio.")
    ] = False,
    port: Annotated[int, typer.Option(help="The loopback port; 0 chooses one.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --http: print address and token as JSON.")
    ] = False,
) -> None:
    """Let an assistant read the audit, drive the plan and (only where allowed) apply it."""
    from importlib.util import find_spec

    from uncork.errors import MissingExtra

    if find_spec("mcp") is None:
        raise MissingExtra(
            "The MCP server needs the extra `mcp`; nothing was started.", next="pip install 'uncork[mcp]'"
        )
    from uncork.agents.mcp_server import build, serve_stdio

    server = build(allow_apply=allow_apply)
    if not http:
        serve_stdio(server)
        return
    _serve_http(server, port, as_json)


def _serve_http(server: object, port: int, as_json: bool) -> None:
    """Listen on 127.0.0.1 and print the address and the token that a client must send."""
    import secrets
    import socket

    import uvicorn

    from uncork.agents.mcp_server import http_app
    from uncork.cli.show import print_json

    token = secrets.token_urlsafe(24)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()  # before the address is told: who reads it may connect
        chosen = listener.getsockname()[1]
        url = f"http://127.0.0.1:{chosen}/mcp"
        if as_json:
            print_json({"url": url, "token": token})
        else:
            typer.echo(f"MCP at {url}\nAuthorization: Bearer {token}")
        import sys

        sys.stdout.flush()
        app_ = http_app(server, chosen, token)  # type: ignore[arg-type]
        uvicorn.Server(uvicorn.Config(app_, log_level="warning")).run(sockets=[listener])
