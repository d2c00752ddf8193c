"""A session as one HTML file, piece by piece; pure.

The file contains its styles and images, no script, and nothing that asks another machine: its
policy forbids both. Each text is escaped, and each element has a name from a list.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from html import escape
from importlib import resources
from typing import Any, Final

from steno.values import Record
from steno_present.open_calls import OpenCalls
from steno_present.wording import count, duration, number
from steno_protocol.replies import SessionStat
from steno_view.markup import Clock, Tree
from steno_view.rows import Row, Rows, image_of

_TAGS: Final = frozenset(
    "p ul ol li blockquote em strong s table thead tbody tr th td h4 h5 h6"  # noqa: SIM905
    " span br hr code pre a".split()
)
_EMPTY: Final = frozenset({"br", "hr"})
_KINDS: Final = {
    "assistant": "assistant", "user": "user", "tool": "tool", "system prompt": "system",
    "system": "system",
}  # fmt: skip
_STYLES: Final = ("record.css", "document.css")


class Document:
    """Makes the file of one state of a session.

    Args:
        stat: the state; its texts are shown as they are.
        clock: limits the time for the colours of code.
    """

    def __init__(self, stat: SessionStat, clock: Clock) -> None:
        self._stat = stat
        self._rows = Rows(clock, is_whole=True)
        self._calls = OpenCalls()

    def head(self) -> str:
        """The file up to the first record."""
        stat = self._stat
        title = escape(stat.title or stat.session)
        styles = "\n".join(_style(name) for name in _STYLES)
        digest = b64encode(sha256(styles.encode()).digest()).decode()
        policy = (
            f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none';"
            " form-action 'none'"
        )
        facts = [f"<code>{escape(stat.session)}</code>"]
        facts += [f"<span>#{escape(label)}</span>" for label in stat.labels]
        if stat.forked_from:
            facts.append(f"<span>fork of {escape(stat.forked_from)}</span>")
        facts.append(f"<span>up to {escape(stat.head)}</span>")
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="content-security-policy" content="{policy}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta name="referrer" content="no-referrer">\n'
            f"<title>{title}</title>\n<style>{styles}</style>\n</head>\n<body>\n<main>\n"
            f'<h1>{title}</h1>\n<p class="facts">{" ".join(facts)}</p>\n'
        )

    def record(self, shown: Record, original: Record | None = None) -> str:
        """One record.

        Args:
            shown: the record with its secrets masked.
            original: the record with its images, which no mask touches; `shown` by default.
        """
        self._calls.add(shown)
        row = self._rows.row(shown)
        place = str(shown.cursor)
        kind = row["kind"]
        if kind == "message":
            body = self._message(row, place, (original or shown).record)
        else:
            is_checkpoint = kind == "checkpoint"
            what = f"checkpoint {row['id']}" if is_checkpoint else _tokens(row["tokens"])
            body = (
                f'<div class="rule {kind}"><span class="what">{escape(what)}</span>'
                f"{_by(row) if is_checkpoint else ''}{_end(row if is_checkpoint else {}, place)}"
                "</div>"
            )
        return f'<article id="{place}">{body}</article>\n'

    def foot(self, damaged: int) -> str:
        """The end of the file."""
        left_out = f'<p class="muted">{count(damaged, "damaged line")} left out</p>\n'
        calls = "".join(
            f'<p class="muted">no result of {escape(call.name)}, called at {call.cursor}</p>\n'
            for call in self._calls.calls()
        )
        return f"{calls}{left_out if damaged else ''}</main>\n</body>\n</html>\n"

    def _message(self, row: Row, place: str, original: Mapping[str, Any]) -> str:
        name = f"{row['role']} · {row['name']}" if row.get("name") else row["role"]
        took = row.get("duration")
        parts = "".join(_part(part, original) for part in row["parts"])
        return (
            f'<div class="message {_KINDS.get(row["role"], "other")}"><header>'
            f'<span class="role">{escape(name)}</span>{_by(row)}'
            f"{'' if took is None else _took(took)}"
            f"{_end(row, place)}</header>{parts}</div>"
        )


def html(trees: Iterable[Tree]) -> str:
    """Trees of elements (see `markup`) as HTML."""
    return "".join(map(_element, trees))


def _element(tree: Tree) -> str:
    if isinstance(tree, str):
        return escape(tree)
    tag, attributes, *children = tree
    tag = tag if tag in _TAGS else "span"
    shown = "".join(
        f' {name}="{escape(str(value))}"'
        for name, value in attributes.items()
        if name in {"class", "start", "href"}
    )
    if "href" in attributes:
        shown += ' target="_blank" rel="noopener noreferrer nofollow"'
    return f"<{tag}{shown}>" if tag in _EMPTY else f"<{tag}{shown}>{html(children)}</{tag}>"


def _part(part: Row, original: Mapping[str, Any]) -> str:
    match part["kind"]:
        case "text":
            return f'<div class="text">{html(part["trees"])}{_more(part)}</div>'
        case "thought":
            body = f'<div class="text">{html(part["trees"])}{_more(part)}</div>'
            return _folded("thought", "thought", part["hint"], body)
        case "call":
            body = f'<pre class="code">{html(part["trees"])}</pre>{_more(part)}'
            return _folded("call", part["name"], part["hint"], body)
        case "result":
            return _result(part)
        case "image":
            return _figure(part, original)
        case _:
            body = f'<pre class="code">{html(part["trees"])}</pre>{_more(part)}'
            return _folded("json", part["title"], "", body)


def _folded(kind: str, tag: str, hint: str, body: str) -> str:
    shown = f'<span class="hint">{escape(hint)}</span>' if hint else ""
    return (
        f'<details class="fold {kind}"><summary><span class="tag">{escape(tag)}</span>{shown}'
        f"</summary>{body}</details>"
    )


def _result(part: Row) -> str:
    head: str | None = part["head"]
    if head is None:
        return f'<pre class="output">{escape(part["text"])}</pre>{_more(part)}'
    rest = part["text"][len(head) + 1 :]
    body = f'<pre class="output">{escape(rest)}</pre>{_more(part)}'
    lines = count(rest.count("\n") + 1, "more line")
    return f'<pre class="output">{escape(head)}</pre>{_folded("result", lines, "", body)}'


def _figure(part: Row, original: Mapping[str, Any]) -> str:
    caption = escape(part["text"])
    found = image_of(dict(original), part["part"])
    if found is None:
        return f'<p class="muted">{caption}</p>'
    media, data = found
    return (
        f'<figure><img alt="{caption}" src="data:{media};base64,{b64encode(data).decode()}">'
        f'<figcaption class="muted">{caption}</figcaption></figure>'
    )


def _by(row: Row) -> str:
    return f'<span class="by">{escape(row["by"])}</span>' if row.get("by") else ""


def _end(row: Row, place: str) -> str:
    link = f'<a class="place" href="#{place}">{place}</a>'
    return f'<span class="end">{_time(row.get("time"))}{link}</span>'


def _time(at: float | None) -> str:
    """A time in UTC: the reader of a file may be anywhere."""
    try:
        when = None if at is None else datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        when = None
    if when is None:
        return ""
    machine = when.isoformat(timespec="seconds")
    return f'<time datetime="{machine}">{when:%Y-%m-%d %H:%M:%S} UTC</time>'


def _took(seconds: float) -> str:
    return f'<span class="took">{escape(duration(max(0.0, seconds)))}</span>'


def _tokens(text: str) -> str:
    return f"{number(int(text)) if text.isascii() and text.isdigit() else text} tokens"


def _more(part: Row) -> str:
    more: int = part["more"]
    return f'<p class="muted">{count(more, "more character")} left out</p>' if more else ""


def _style(name: str) -> str:
    return (resources.files("steno_view") / "static" / name).read_text()
