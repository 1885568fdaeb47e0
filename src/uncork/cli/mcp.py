"""uncork mcp."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def mcp(
    allow_apply: Annotated[
        bool, typer.Option("--allow-apply", help="Add the tools that can write to the host.")
    ] = False,
    consent: Annotated[
        Path | None, typer.Option(help="With --allow-apply: root's file of changes that need no question.")
    ] = None,
    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP on loopback instead of stdio.")
    ] = False,
    port: Annotated[int, typer.Option(help="The loopback port; 0 chooses one.")] = 0,
    token_file: Annotated[
        Path | None, typer.Option(help="With --http: keep the token in this file (mode 0600).")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --http: print address and token as JSON.")
    ] = False,
) -> None:
    """Let an assistant read the audit, drive the plan and (only where allowed) apply it."""
    from importlib.util import find_spec

    from uncork.errors import BadInput, MissingExtra

    if (consent and not allow_apply) or (token_file and not http):
        which = (
            "--consent goes with --allow-apply"
            if consent and not allow_apply
            else "--token-file goes with --http"
        )
        raise BadInput(f"{which}; nothing was started.", next="uncork mcp --help")
    if find_spec("mcp") is None:
        raise MissingExtra(
            "The MCP server needs the extra `mcp`; nothing was started.", next="pip install 'uncork[mcp]'"
        )
    from uncork.agents import policy
    from uncork.agents.mcp_server import build, serve_stdio

    if consent:
        policy.read(consent)  # refused at the start, not in the middle of a conversation
    server = build(allow_apply=allow_apply, allowed=consent)
    if not http:
        serve_stdio(server)
        return
    _serve_http(server, port, token_file, as_json)


def _serve_http(server: object, port: int, token_file: Path | None, as_json: bool) -> None:
    """Listen on 127.0.0.1 and print the address and the token that a client must send, or where it is kept."""
    import socket
    import sys

    import uvicorn

    from uncork.agents import token
    from uncork.agents.mcp_server import http_app
    from uncork.cli.show import print_json

    secret = token.kept(token_file) if token_file else token.new()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a fixed port is free again at once
        listener.bind(("127.0.0.1", port))
        listener.listen()  # before the address is told: who reads it may connect
        chosen = listener.getsockname()[1]
        url = f"http://127.0.0.1:{chosen}/mcp"
        told = {"token_file": str(token_file)} if token_file else {"token": secret}
        if as_json:
            print_json({"url": url, **told})
        else:
            typer.echo(f"MCP at {url}")
            typer.echo(f"Authorization: Bearer {f'(in {token_file})' if token_file else secret}")
        sys.stdout.flush()
        app_ = http_app(server, chosen, secret)  # type: ignore[arg-type]
        uvicorn.Server(uvicorn.Config(app_, log_level="warning")).run(sockets=[listener])
