"""A peer with handmade frames."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import zmq

from steno_protocol.messages import split_message
from support.framing import answers_of, command_frames, request_frames

ANSWER_MS = 60_000
"""A daemon under test answers long before; a silence this long is a failure."""


class RawPeer:
    """One DEALER socket on the daemon of a root; it queues `receive_messages`, 0 is no limit."""

    def __init__(self, root: Path, receive_messages: int = 0) -> None:
        self._context = zmq.Context()
        self.socket = self._context.socket(zmq.DEALER)
        self.socket.set(zmq.LINGER, 0)
        self.socket.set(zmq.RCVHWM, receive_messages)
        self.socket.set(zmq.RCVTIMEO, ANSWER_MS)
        self.socket.set(zmq.SNDTIMEO, ANSWER_MS)
        self.socket.connect(f"ipc://{root / 'stenod.sock'}")
        self._number = 0

    def send(self, *frames: bytes) -> None:
        """Send frames as they are."""
        self.socket.send_multipart(frames)

    def ask_bytes(self, header: bytes, records: Sequence[bytes] = ()) -> dict[str, Any]:
        """Send a header as bytes and return the answer's header."""
        self._number += 1
        name = str(self._number).encode()
        for message in split_message(request_frames(name, header, *records)):
            self.send(*message)
        return self.answer(name)

    def ask(self, command: str, *records: bytes, **fields: Any) -> dict[str, Any]:
        """Send a command and return the answer's header."""
        return self.ask_bytes(json.dumps({"command": command, **fields}).encode(), records)

    def begin(self, name: bytes, command: str, **fields: Any) -> None:
        """Send a command under a name of the caller's; its answers are for the caller to take."""
        self.send(*command_frames(name, command, **fields))

    def answer(self, name: bytes) -> dict[str, Any]:
        """The answer to one request; others that come first are passed over."""
        return self.answers([name])[name]

    def answers(self, names: Iterable[bytes]) -> dict[bytes, dict[str, Any]]:
        """The first answer to each of some requests; others that come first are passed over."""
        missing, found = set(names), dict[bytes, dict[str, Any]]()
        while missing:
            for name, body in self.receive():
                if name in missing:
                    missing.remove(name)
                    found[name] = body
        return found

    def receive(self) -> list[tuple[bytes, dict[str, Any]]]:
        """The next message: request ids, and the body of each reply or event."""
        return answers_of(self.socket.recv_multipart())

    def close(self) -> None:
        """Hang up."""
        self.socket.close(linger=0)
        self._context.term()
