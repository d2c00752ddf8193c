"""A scripted model server on loopback: one step for each request."""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

SUMMARY = "<current_focus>\nThe tests of the parser.\n</current_focus>"
"""The model's answer to a valid request."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it arrived; `headers` have their names in lower case."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


class Reply(BaseHTTPRequestHandler):
    """One request that a step of the script answers."""

    protocol_version = "HTTP/1.1"
    server: "_Server"
    asked: Asked

    def do_POST(self) -> None:
        """Take the next step of the script."""
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.asked = Asked(self.path, headers, json.loads(body))
        self.server.owner.take(self.asked)(self)

    def send(self, status: int, body: bytes, **headers: str) -> None:
        """Answer with a whole response."""
        self.begin(status, len(body), **headers)
        self.wfile.write(body)

    def begin(self, status: int, length: int, **headers: str) -> None:
        """Send the head of a response, and announce `length` bytes of body."""
        self.send_response(status)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"content-type": "application/json", **named}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(length))
        self.end_headers()
        self.wfile.flush()

    def hang_up(self) -> None:
        """End the connection after the bytes sent so far, and notify the test."""
        self.close_connection = True
        self.server.owner.hung_up.set()

    def log_request(self, code: object = "-", size: object = "-") -> None:
        """Nothing is printed."""


Step = Callable[[Reply], None]


class _Server(ThreadingHTTPServer):
    owner: "ModelServer"
    daemon_threads = False  # so that the end of a test waits for its requests


class ModelServer:
    """Answers the n-th request with the n-th step, and all that follow with the last one.

    Attributes:
        asked: the requests so far.
        was_asked: set once there was a request.
        hung_up: set once a connection was ended before its answer was whole.
    """

    def __init__(self, *script: Step) -> None:
        self.asked: list[Asked] = []
        self.was_asked = threading.Event()
        self.hung_up = threading.Event()
        self._script: Sequence[Step] = script
        self._server = _Server(("127.0.0.1", 0), Reply)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def base_url(self) -> str:
        """The base URL for either provider."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def take(self, asked: Asked) -> Step:
        """Note a request; the step that answers it."""
        self.asked.append(asked)
        self.was_asked.set()
        return self._script[min(len(self.asked), len(self._script)) - 1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


# --- steps ---------------------------------------------------------------------------------------


def chat(text: str | None = SUMMARY, ending: str = "stop", **message: Any) -> Step:
    """The answer of chat completions."""
    choice = {"finish_reason": ending, "message": {"role": "assistant", "content": text, **message}}
    return answer({"choices": [choice], "usage": {"completion_tokens": 17}})


def message(*parts: Mapping[str, Any], ending: str = "end_turn") -> Step:
    """The answer of messages."""
    content = parts or ({"type": "text", "text": SUMMARY},)
    usage = {"input_tokens": 60, "output_tokens": 18}
    return answer({"content": content, "stop_reason": ending, "usage": usage})


def answer(value: Any, status: int = 200, **headers: str) -> Step:
    """Any JSON."""
    return raw(json.dumps(value).encode(), status, **headers)


def raw(body: bytes, status: int = 200, **headers: str) -> Step:
    """Any bytes."""
    return lambda reply: reply.send(status, body, **headers)


def failing(status: int, message: str = "no", **headers: str) -> Step:
    """A refusal in the form that both providers use."""
    return answer({"error": {"message": message, "type": "test"}}, status, **headers)


def hanging_up_at_once(reply: Reply) -> None:
    """No answer at all."""
    reply.hang_up()


def hanging_up_in_the_body(reply: Reply) -> None:
    """Half an answer."""
    reply.begin(200, 1000)
    reply.wfile.write(b'{"choices":[')
    reply.hang_up()


def stalling(reply: Reply) -> None:
    """The first byte of an answer, and no more until the client has gone."""
    # A client may be gone before the answer begins.
    with suppress(ConnectionError):
        reply.begin(200, 1000)
        reply.wfile.write(b"{")
        reply.rfile.read(1)
    reply.hang_up()


def endless(reply: Reply) -> None:
    """An answer that goes on until the client has had enough."""
    reply.begin(200, 2**40)
    block = b" " * 65536
    with suppress(ConnectionError):
        while True:
            reply.wfile.write(block)
    reply.hang_up()
