"""A server that speaks the OpenAI chat API and answers from a script, one script a dimension."""

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Turn = dict[str, Any]  # the assistant's message
Script = Callable[
    [int, list[dict[str, Any]]], Turn | str | None
]  # turn, messages -> message, raw body, or hang


def call(tool: str, **arguments: Any) -> Turn:
    """A message that calls one tool."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }


def report(*claims: dict[str, Any]) -> Turn:
    """A message that ends the exploration with these claims."""
    return call("final_result", claims=list(claims))


def claim(finding: str, source: str, text: str) -> dict[str, Any]:
    """A claim with one quote."""
    return {"finding": finding, "evidence": [{"source": source, "text": text}], "proposed_check": ""}


@contextmanager
def scripted_model(scripts: dict[str, Script], otherwise: Script) -> Iterator[tuple[str, list[str]]]:
    """Serve on loopback; yields the URL and the list of every tool result that a model was sent."""
    results: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # as real servers: connections are kept, and must be closed by us

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            messages = asked["messages"]
            results.extend(m["content"] for m in messages[-1:] if m["role"] == "tool")
            found = re.search(r"language models: (\w+)\.", json.dumps(messages))
            script = scripts.get(found[1] if found else "", otherwise)
            answer = script(sum(m["role"] == "assistant" for m in messages), messages)
            if answer is None:
                time.sleep(5)
                return
            self._send(answer if isinstance(answer, str) else json.dumps(_completion(answer)))

        def _send(self, body: str) -> None:
            data = body.encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            with contextlib.suppress(ConnectionError):  # an explorer that is cut off hangs up
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", results
    finally:
        server.shutdown()
        server.server_close()


def _completion(message: Turn) -> dict[str, Any]:
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120},
    }
