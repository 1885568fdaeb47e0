"""uncork watch: the report live on loopback while a run goes on, read-only."""

import secrets
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Annotated
from urllib.parse import parse_qs, urlsplit

import typer

if TYPE_CHECKING:
    from uncork.plan.store import Store

app = typer.Typer(rich_markup_mode=None, add_completion=False)

EVERY_MS = 2000
HOSTS = ("127.0.0.1", "localhost", "[::1]")

# Replaces the page's body when something changed, keeping what is open, and says when the run has gone.
SCRIPT = """
let seen = null;
async function look() {
  let said = 'live';
  try {
    const asked = '/body?token=' + encodeURIComponent(TOKEN) + '&seen=' + (seen || '');
    const answer = await fetch(asked, {cache: 'no-store'});
    if (answer.status === 200) {
      const open = new Set([...document.querySelectorAll('details[open] > summary')].map(one => one.textContent));
      const colours = document.querySelector('input[name=colours]:checked')?.id;
      document.getElementById('page').innerHTML = await answer.text();
      document.querySelectorAll('details').forEach(one => {
        if (open.has(one.querySelector('summary').textContent)) one.open = true; });
      if (colours) document.getElementById(colours).checked = true;
      seen = answer.headers.get('ETag');
    } else if (answer.status !== 204) said = 'refused: open the address that uncork watch printed';
  } catch (error) { said = 'uncork watch has ended; this page no longer moves'; }
  const line = document.getElementById('connection');
  if (line) line.textContent = said;
  setTimeout(look, EVERY);
}
look();
"""


@app.command()
def watch(
    plan_id: Annotated[
        str | None, typer.Argument(help="A plan; the open or newest otherwise.", metavar="[PLAN]")
    ] = None,
    port: Annotated[
        int, typer.Option("--port", help="A port of the loopback; 0 lets the system choose.")
    ] = 0,
) -> None:
    """Serve the report of the run that goes on, on 127.0.0.1 alone. It reads and changes nothing; Ctrl-C ends it."""
    server = serve(plan_id, port)
    print(f"http://127.0.0.1:{server.server_port}/?token={server.token}", flush=True)
    print(
        "next: open it in a browser on this machine (over ssh: -L PORT:127.0.0.1:PORT); Ctrl-C ends it",
        flush=True,
    )
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        pass
    finally:
        server.server_close()


class Server(ThreadingHTTPServer):
    """A server on loopback whose every answer needs the token."""

    daemon_threads = True
    token = ""


def serve(plan_id: str | None, port: int) -> Server:
    """A server that listens, not yet serving. Raises `NotFound` where there is no plan, `BadInput` for the port."""
    from uncork.errors import BadInput

    token = secrets.token_urlsafe(24)
    page = Live(plan_id, token)
    page.body("")  # a plan that is not there is said now
    try:
        server = Server(("127.0.0.1", port), partial(Handler, page))
    except (OSError, OverflowError) as error:
        raise BadInput(
            f"Port {port} of 127.0.0.1 cannot be used: {error}.", next="uncork watch --port 0"
        ) from error
    server.token = token
    return server


class Live:
    """Builds the page of a plan again when the plan or its artefacts have changed."""

    def __init__(self, plan_id: str | None, token: str) -> None:
        import threading

        self.plan_id, self.token = plan_id, token
        self._lock = threading.Lock()
        self._mark, self._body = "", ""

    def whole(self, nonce: str) -> str:
        """The first answer: the page with the script that asks for the next ones."""
        from uncork.cli.report import stories_of
        from uncork.record.report.live import now
        from uncork.record.report.page import page

        script = SCRIPT.replace("TOKEN", _quoted(self.token)).replace("EVERY", str(EVERY_MS))
        stories = stories_of([self.plan_id] if self.plan_id else [])
        return page(
            stories,
            policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'; connect-src 'self'",
            live=now(stories[0]),
            script=f'<script nonce="{nonce}">{script}</script>',
        )

    def body(self, seen: str) -> tuple[str, str | None]:
        """What has changed since `seen`: its mark and the page's body, None where nothing has."""
        from uncork.cli.report import story_of
        from uncork.plan.store import Store
        from uncork.record.report.live import now
        from uncork.record.report.page import body_of

        with self._lock, Store(create=False) as store:
            mark = _mark(store, self.plan_id)
            if mark == seen:
                return mark, None
            if mark != self._mark:
                story = story_of(store, self.plan_id)
                self._mark, self._body = mark, body_of([story], now(story))
            return mark, self._body


class Handler(BaseHTTPRequestHandler):
    """GET / and GET /body, with the token, asked of loopback by name, from no other origin."""

    server_version = "uncork"
    sys_version = ""

    def __init__(self, live: Live, *rest: object) -> None:
        self.live = live
        super().__init__(*rest)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answer or refuse."""
        from uncork.errors import UncorkError

        parts = urlsplit(self.path)
        asked = parse_qs(parts.query)
        answers: dict[str, Callable[[], None]] = {
            "/": self._whole,
            "/body": lambda: self._changed(asked.get("seen", [""])[0]),
        }
        if why := self._refused(asked.get("token", [""])[0]):
            self._answer(403, why)
        elif parts.path not in answers:
            self._answer(404, "There is nothing here.")
        else:
            try:
                answers[parts.path]()
            except UncorkError as error:
                self._answer(503, error.says)

    def _refused(self, token: str) -> str:
        """Why this request gets nothing; a page elsewhere could ask by a name of its own that leads here."""
        host = self.headers.get("Host", "").rpartition(":")[0]
        if host not in HOSTS:
            return "This address is served to 127.0.0.1 and localhost only."
        origin = self.headers.get("Origin")
        if origin and origin != f"http://{self.headers.get('Host')}":
            return "Another site's page may not read this."
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return "Another site's page may not read this."
        if not secrets.compare_digest(token.encode(), self.live.token.encode()):
            return "The token is missing or wrong; open the address that uncork watch printed."
        return ""

    def _whole(self) -> None:
        nonce = secrets.token_urlsafe(16)
        self._answer(200, self.live.whole(nonce), kind="text/html")

    def _changed(self, seen: str) -> None:
        mark, body = self.live.body(seen)
        if body is None:
            self._answer(204, "")
        else:
            self._answer(200, body, kind="text/html", mark=mark)

    def _answer(self, status: int, text: str, *, kind: str = "text/plain", mark: str = "") -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ):
            self.send_header(name, value)
        if mark:
            self.send_header("ETag", mark)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: an access log would show the token."""


def _quoted(text: str) -> str:
    import json

    return json.dumps(text).replace("<", "\\u003c")


def _mark(store: "Store", plan_id: str | None) -> str:
    """Changes whenever the plan or a file of its folder does."""
    import hashlib

    from uncork.loop.run import artefacts

    plan = store.read(plan_id)
    steps = [(one.name, one.shown.value, one.attempt, len(one.evidence)) for one in plan.steps]
    files = sorted(
        (str(path), path.stat().st_mtime_ns)
        for path in artefacts(store.folder, plan.id).rglob("*.json")
        if not path.name.startswith(".")
    )
    return hashlib.sha256(repr((plan.revision, plan.state, steps, files)).encode()).hexdigest()[:24]
