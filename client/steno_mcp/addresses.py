"""URIs of sessions; pure.

    steno://session/{session}                      numbers of the session, as JSON
    steno://session/{session}/transcript.md        its messages as Markdown
    steno://session/{session}/transcript.json      its records as JSON
    steno://session/{session}/wire.jsonl           its events, as stored
    steno://session/{session}/stream/{stream}.jsonl   the records of a stream

A session id is percent-encoded as one part: the slashes of `team/planner-1` are `%2F`.
"""

from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote, unquote_to_bytes

from steno_mcp.limits import URI_CHARS_MAX
from steno_protocol.errors import NotFound, StenoError
from steno_protocol.paths import check_stream, split_session

View = Literal["state", "markdown", "json", "wire", "stream"]
"""What a resource shows of its session."""

ROOT: Final = "steno://session/"

_SUFFIXES: Final[dict[str, View]] = {
    "": "state",
    "transcript.md": "markdown",
    "transcript.json": "json",
    "wire.jsonl": "wire",
}
_STREAM: Final = "stream/"
_STREAM_END: Final = ".jsonl"

MIME_TYPES: Final[dict[View, str]] = {
    "state": "application/json",
    "markdown": "text/markdown",
    "json": "application/json",
    "wire": "application/jsonl",
    "stream": "application/jsonl",
}
"""The type of each view."""


@dataclass(frozen=True, slots=True)
class Address:
    """What a URI names.

    Attributes:
        session: the id of the session.
        view: what it shows of the session.
        stream: the name of the stream; empty for other views.
    """

    session: str
    view: View = "state"
    stream: str = ""

    def __str__(self) -> str:
        head = f"{ROOT}{quote(self.session, safe='')}"
        if self.view == "stream":
            return f"{head}/{_STREAM}{self.stream}{_STREAM_END}"
        suffix = next(text for text, view in _SUFFIXES.items() if view == self.view)
        return f"{head}/{suffix}" if suffix else head

    @classmethod
    def parse(cls, uri: str) -> "Address":
        """Parse a URI.

        Raises:
            NotFound: it names no resource of this server.
        """
        if len(uri) <= URI_CHARS_MAX and uri.startswith(ROOT):
            part, _, rest = uri.removeprefix(ROOT).partition("/")
            try:
                session = unquote_to_bytes(part).decode()
                split_session(session)
                return cls(session, *_view_of(rest))
            except (StenoError, UnicodeError, KeyError):
                pass
        raise NotFound(
            f"{uri[:200]!r} is no resource of steno: resources/templates/list shows the forms, and"
            " a slash in a session id is written %2F"
        )


def _view_of(rest: str) -> tuple[View, str]:
    """The view and the stream of the part behind the session.

    Raises:
        KeyError, BadRequest: there is no such view.
    """
    if not (rest.startswith(_STREAM) and rest.endswith(_STREAM_END)):
        return _SUFFIXES[rest], ""
    return "stream", check_stream(rest[len(_STREAM) : -len(_STREAM_END)])


TEMPLATES: Final[tuple[tuple[str, View, str], ...]] = (
    ("{session}", "state", "Head, size, title and pending D-Mail of a session."),
    ("{session}/transcript.md", "markdown", "The messages of a session as Markdown."),
    ("{session}/transcript.json", "json", "The records of a session with their positions."),
    ("{session}/wire.jsonl", "wire", "The events of a session's wire file, one a line."),
    ("{session}/stream/{stream}.jsonl", "stream", "The records of a stream, one a line."),
)
"""The forms of the URIs behind `ROOT`, each with its view and its description."""
