"""A model that does what the prompt says, over the interfaces of several services; loopback only.

Signs in the last prompt choose the answer:

    {{run COMMAND}}   a call of the program's shell; several of them are parallel calls
    {{hold}}          half an answer, and nothing more until the test lets it go on
    {{fail}}          the service refuses the request
    {{long}}          the context is nearly full, so that the program compacts it

After results comes a closing sentence. Each answer has a number of its own, so a test sees which
request it belongs to. All requests are kept, with what they say.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from interop.agents.said import Said, of_chat, of_claude, of_contents, of_responses

_SIGN: Final = re.compile(r"\{\{(run|hold|fail|long) ?(.*?)\}\}")
_HELD_S: Final = 600.0
"""A held answer ends by itself, so that a program that nobody kills ends, too."""

_TOKEN_BYTES: Final = 4
_LONG_TOKENS: Final = 900_000

Event = Callable[[str, dict[str, Any]], None]
"""Sends an event of a stream."""


@dataclass
class Answer:
    """What the model says.

    Attributes:
        text: its words.
        calls: the name and the arguments of each call.
        tokens: the size that the context has, as it reports.
        is_held: it stops in the middle.
        is_failure: it is an error.
    """

    number: int
    text: str
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list[Any])
    tokens: int = 0
    is_held: bool = False
    is_failure: bool = False

    @property
    def said(self) -> list[Said]:
        """The answer as the next request has it."""
        called = [Said("call", json.dumps(each, sort_keys=True)) for _, each in self.calls]
        return [Said("assistant", self.text), *called]


@dataclass
class Request:
    """A request of a program, and the answer to it.

    Attributes:
        path: its address at the service.
        body: its document.
        said: the conversation in it.
        answer: what was answered.
    """

    path: str
    body: dict[str, Any]
    said: list[Said]
    answer: Answer

    @property
    def prompts(self) -> list[str]:
        """What the user said."""
        return [each.text for each in self.said if each.kind == "user"]

    @property
    def whole(self) -> list[Said]:
        """The conversation with the answer."""
        return [*self.said, *self.answer.said]


class MockModel:
    """The model, served in threads.

    Attributes:
        url: its address, without a path.
        requests: what programs sent, in the order of their answers.
        held: set while an answer is held.
    """

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.held = threading.Event()
        self.go_on = threading.Event()
        self._lock = threading.Lock()
        model = self

        class Handler(_Handler):
            def answer(self, body: dict[str, Any]) -> None:
                model._answer(self, body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        """End it; answers that are held end, too."""
        self.go_on.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, handler: "_Handler", body: dict[str, Any]) -> None:
        path = handler.path.partition("?")[0]
        service = next((each for end, each in _SERVICES.items() if path.endswith(end)), None)
        if service is None:
            handler.document({"error": {"message": f"nothing is at {path}"}}, 404)
            return
        said = service.said(body)
        with self._lock:
            answer = _answer_to(said, service.tools(body), len(self.requests) + 1)
            answer.tokens = answer.tokens or handler.size // _TOKEN_BYTES
            self.requests.append(Request(path, body, said, answer))
        if answer.is_failure:
            error = {"type": "invalid_request_error", "message": "the model refuses this"}
            handler.document({"type": "error", "error": error}, 400)
        elif body.get("stream") or path.endswith(":streamGenerateContent"):
            service.stream(answer, body, handler.begin_stream(), self._hold)
            handler.end_stream()
        else:
            handler.document(service.whole(answer, body))

    def _hold(self, answer: Answer) -> None:
        """Wait in the middle of an answer."""
        if answer.is_held:
            self.held.set()
            self.go_on.wait(_HELD_S)


def _answer_to(said: list[Said], tools: dict[str, Any], number: int) -> Answer:
    answer = Answer(number, f"Answer {number}.")
    # A request without tools asks for a title or a summary.
    if tools and said and said[-1].kind == "user":
        signs = _SIGN.findall(said[-1].text)
        commands = [command for sign, command in signs if sign == "run"]
        answer.calls = [_shell_call(command, tools) for command in commands]
        answer.is_failure = any(sign == "fail" for sign, _ in signs)
        answer.is_held = any(sign == "hold" for sign, _ in signs)
        answer.tokens = _LONG_TOKENS if any(sign == "long" for sign, _ in signs) else 0
    return answer


_SHELLS: Final = "Bash", "bash", "run_shell_command", "exec_command", "shell_command", "shell"
_EMPTY: Final[dict[str, Any]] = {"boolean": False, "integer": 10_000, "number": 10_000}


def _shell_call(command: str, tools: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A call of the program's own tool for commands, with what its schema requires."""
    name = next(each for each in _SHELLS if each in tools)
    properties, required = tools[name]["properties"], tools[name].get("required", [])
    of_command = "command" if "command" in properties else "cmd"
    more = {
        each: _EMPTY.get(properties[each].get("type"), "a command")
        for each in required
        if each != of_command
    }
    is_list = properties[of_command].get("type") == "array"
    return name, {of_command: ["bash", "-c", command] if is_list else command, **more}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    size = 0

    def answer(self, body: dict[str, Any]) -> None:
        raise NotImplementedError

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_POST(self) -> None:
        """Answer a request."""
        self.size = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(self.size) or b"{}")
        # A program that is killed hangs up.
        with suppress(BrokenPipeError, ConnectionResetError):
            self.answer(body)

    def do_GET(self) -> None:
        """Answer that nothing is there: no program needs more than the model."""
        self.document({"data": [], "models": []}, 200 if self.path.endswith("/models") else 404)

    def do_HEAD(self) -> None:
        """Answer as to GET, without a document."""
        self.do_GET()

    def document(self, document: dict[str, Any], status: int = 200) -> None:
        """Send an answer as a whole."""
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def begin_stream(self) -> Event:
        """Begin an answer in events."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.close_connection = True
        self.end_headers()

        def send(name: str, data: dict[str, Any]) -> None:
            head = f"event: {name}\n" if name else ""
            self.wfile.write(f"{head}data: {json.dumps(data)}\n\n".encode())
            self.wfile.flush()

        return send

    def end_stream(self) -> None:
        """End it; the connection ends with it."""
        self.wfile.flush()


class _Responses:
    """OpenAI's Responses."""

    @staticmethod
    def said(body: dict[str, Any]) -> list[Said]:
        return list(of_responses(body["input"]))

    @staticmethod
    def tools(body: dict[str, Any]) -> dict[str, Any]:
        named = [each for each in body.get("tools") or [] if each.get("type") == "function"]
        return {each["name"]: each["parameters"] for each in named}

    @staticmethod
    def items(answer: Answer) -> Iterator[dict[str, Any]]:
        number = answer.number
        text = {"type": "output_text", "text": answer.text, "annotations": []}
        yield {
            "type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed",
            "content": [text],
        }  # fmt: skip
        for at, (name, arguments) in enumerate(answer.calls):
            yield {
                "type": "function_call", "id": f"fc_{number}_{at}", "status": "completed",
                "call_id": f"call_{number}_{at}", "name": name,
                "arguments": json.dumps(arguments),
            }  # fmt: skip

    @classmethod
    def whole(cls, answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
        usage = {
            "input_tokens": answer.tokens, "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.tokens + 9,
        }  # fmt: skip
        return {
            "id": f"resp_{answer.number}", "object": "response", "created_at": 1,
            "model": body.get("model"), "status": "completed", "usage": usage,
            "output": list(cls.items(answer)),
        }  # fmt: skip

    @classmethod
    def stream(
        cls, answer: Answer, body: dict[str, Any], send: Event, hold: Callable[[Answer], None]
    ) -> None:
        def event(name: str, **fields: Any) -> None:
            send(f"response.{name}", {"type": f"response.{name}", **fields})

        whole = cls.whole(answer, body)
        event("created", response={**whole, "status": "in_progress", "output": []})
        for at, item in enumerate(whole["output"]):
            is_text = item["type"] == "message"
            begun = {**item, "content": []} if is_text else {**item, "arguments": ""}
            event("output_item.added", output_index=at, item={**begun, "status": "in_progress"})
            if is_text:
                place = {"item_id": item["id"], "output_index": at, "content_index": 0}
                event("output_text.delta", **place, delta=answer.text[:3])
                hold(answer)
                event("output_text.delta", **place, delta=answer.text[3:])
            event("output_item.done", output_index=at, item=item)
        event("completed", response=whole)


class _Chat:
    """OpenAI's Chat Completions."""

    @staticmethod
    def said(body: dict[str, Any]) -> list[Said]:
        return list(of_chat(body["messages"]))

    @staticmethod
    def tools(body: dict[str, Any]) -> dict[str, Any]:
        named = [each["function"] for each in body.get("tools") or []]
        return {each["name"]: each.get("parameters") or {"properties": {}} for each in named}

    @staticmethod
    def calls(answer: Answer) -> list[dict[str, Any]]:
        return [
            {
                "index": at, "id": f"call_{answer.number}_{at}", "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for at, (name, arguments) in enumerate(answer.calls)
        ]  # fmt: skip

    @staticmethod
    def usage(answer: Answer) -> dict[str, int]:
        return {
            "prompt_tokens": answer.tokens, "completion_tokens": 9,
            "total_tokens": answer.tokens + 9,
        }  # fmt: skip

    @classmethod
    def whole(cls, answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": answer.text}
        calls = cls.calls(answer)
        choice = {
            "index": 0, "message": {**message, "tool_calls": calls} if calls else message,
            "finish_reason": "tool_calls" if calls else "stop",
        }  # fmt: skip
        return {
            "id": f"chat_{answer.number}", "object": "chat.completion", "created": 1,
            "model": body.get("model"), "choices": [choice], "usage": cls.usage(answer),
        }  # fmt: skip

    @classmethod
    def stream(
        cls, answer: Answer, body: dict[str, Any], send: Event, hold: Callable[[Answer], None]
    ) -> None:
        head = {
            "id": f"chat_{answer.number}", "object": "chat.completion.chunk", "created": 1,
            "model": body.get("model"),
        }  # fmt: skip

        def chunk(delta: dict[str, Any], reason: str | None = None) -> None:
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            send("", {**head, "choices": [choice]})

        chunk({"role": "assistant", "content": answer.text[:3]})
        hold(answer)
        chunk({"content": answer.text[3:]})
        calls = cls.calls(answer)
        for call in calls:
            chunk({"tool_calls": [call]})
        chunk({}, "tool_calls" if calls else "stop")
        send("", {**head, "choices": [], "usage": cls.usage(answer)})


class _Messages:
    """Anthropic's Messages."""

    @staticmethod
    def said(body: dict[str, Any]) -> list[Said]:
        return list(of_claude(body["messages"]))

    @staticmethod
    def tools(body: dict[str, Any]) -> dict[str, Any]:
        named = [each for each in body.get("tools") or [] if "input_schema" in each]
        return {each["name"]: each["input_schema"] for each in named}

    @staticmethod
    def whole(answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
        called = [
            {
                "type": "tool_use", "id": f"toolu_{answer.number}_{at}", "name": name,
                "input": arguments,
            }
            for at, (name, arguments) in enumerate(answer.calls)
        ]  # fmt: skip
        usage = {
            "input_tokens": answer.tokens, "output_tokens": 9, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
        }  # fmt: skip
        return {
            "id": f"msg_{answer.number}", "type": "message", "role": "assistant",
            "model": body.get("model"), "content": [{"type": "text", "text": answer.text}, *called],
            "stop_reason": "tool_use" if called else "end_turn", "stop_sequence": None,
            "usage": usage,
        }  # fmt: skip

    @classmethod
    def stream(
        cls, answer: Answer, body: dict[str, Any], send: Event, hold: Callable[[Answer], None]
    ) -> None:
        def event(name: str, **fields: Any) -> None:
            send(name, {"type": name, **fields})

        whole = cls.whole(answer, body)
        event("message_start", message={**whole, "content": [], "stop_reason": None})
        for at, part in enumerate(whole["content"]):
            if part["type"] == "text":
                event("content_block_start", index=at, content_block={**part, "text": ""})
                for text in (answer.text[:3], answer.text[3:]):
                    delta = {"type": "text_delta", "text": text}
                    event("content_block_delta", index=at, delta=delta)
                    hold(answer)
            else:
                event("content_block_start", index=at, content_block={**part, "input": {}})
                delta = {"type": "input_json_delta", "partial_json": json.dumps(part["input"])}
                event("content_block_delta", index=at, delta=delta)
            event("content_block_stop", index=at)
        stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        event("message_delta", delta=stop, usage=whole["usage"])
        event("message_stop")


class _Contents:
    """Google's contents."""

    @staticmethod
    def said(body: dict[str, Any]) -> list[Said]:
        return list(of_contents(body["contents"]))

    @staticmethod
    def tools(body: dict[str, Any]) -> dict[str, Any]:
        named = [
            each
            for tool in body.get("tools") or []
            for each in tool.get("functionDeclarations", [])
        ]
        return {each["name"]: each["parametersJsonSchema"] for each in named}

    @staticmethod
    def part_of(answer: Answer, parts: list[dict[str, Any]], reason: str = "") -> dict[str, Any]:
        candidate = {"index": 0, "content": {"role": "model", "parts": parts}}
        usage = {
            "promptTokenCount": answer.tokens, "candidatesTokenCount": 9,
            "totalTokenCount": answer.tokens + 9,
        }  # fmt: skip
        return {
            "candidates": [{**candidate, "finishReason": reason} if reason else candidate],
            "usageMetadata": usage, "modelVersion": "mock", "responseId": f"r{answer.number}",
        }  # fmt: skip

    @staticmethod
    def calls(answer: Answer) -> list[dict[str, Any]]:
        return [{"functionCall": {"name": name, "args": args}} for name, args in answer.calls]

    @classmethod
    def whole(cls, answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
        generation = body.get("generationConfig") or {}
        schema = generation.get("responseJsonSchema") or generation.get("responseSchema")
        text = answer.text if schema is None else json.dumps(_filled(schema))
        return cls.part_of(answer, [{"text": text}, *cls.calls(answer)], "STOP")

    @classmethod
    def stream(
        cls, answer: Answer, body: dict[str, Any], send: Event, hold: Callable[[Answer], None]
    ) -> None:
        del body
        send("", cls.part_of(answer, [{"text": answer.text[:3]}]))
        hold(answer)
        send("", cls.part_of(answer, [{"text": answer.text[3:]}]))
        for call in cls.calls(answer):
            send("", cls.part_of(answer, [call]))
        send("", cls.part_of(answer, [{"text": ""}], "STOP"))


def _filled(schema: dict[str, Any]) -> Any:
    """A value as a schema wants it."""
    match str(schema.get("type", "string")).lower():
        case "object":
            return {name: _filled(each) for name, each in schema.get("properties", {}).items()}
        case "array":
            return []
        case "number" | "integer":
            return 1
        case "boolean":
            return False
        case _:
            return schema.get("enum", ["mock"])[0]


_SERVICES: Final[dict[str, Any]] = {
    "/responses": _Responses,
    "/chat/completions": _Chat,
    "/messages": _Messages,
    ":generateContent": _Contents,
    ":streamGenerateContent": _Contents,
}
