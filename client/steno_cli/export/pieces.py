"""A session as the lines of one file, written as they are read."""

import json
import time
from collections.abc import Iterable, Iterator

import msgspec

from steno import BlockingSession
from steno.values import Record, StreamRecord, WireRecord
from steno_cli.render.progress import Progress
from steno_present import contract
from steno_present.markdown import Markdown, head_of
from steno_present.open_calls import OpenCalls, closing
from steno_protocol.errors import BadRequest
from steno_protocol.installation import extra_command
from steno_protocol.positions import Position
from steno_protocol.replies import SessionStat
from steno_redact.records import masked_line, masked_record, masked_stat
from steno_redact.redactor import Redactor


class Pieces:
    """The parts of an export, read one after the other.

    Attributes:
        damaged: skipped lines that were no records.
        masked: lines in which a secret was masked.
        calls: the calls that have no result in the exported records.
    """

    def __init__(
        self,
        session: BlockingSession,
        stat: SessionStat,
        progress: Progress,
        redactor: Redactor,
        *,
        closes: bool = False,
    ) -> None:
        self._session = session
        self._stat = masked_stat(redactor, stat)
        self._progress = progress
        self._redactor = redactor
        self._closes = closes
        self.calls: OpenCalls = OpenCalls()
        self.damaged: int = 0
        self.masked: int = 0

    def lines(self, form: str) -> Iterator[str]:
        """The lines of the file in a format."""
        match form:
            case "json":
                return self._json()
            case "jsonl":
                return (self._document(record.raw) for record, _ in self._records())
            case "html":
                return self._html()
            case _:
                return self._markdown()

    def _markdown(self) -> Iterator[str]:
        """The lines of the conversation, those of a record together."""
        yield from head_of(self._stat)
        rendering = Markdown()
        for record, _ in self._records():
            yield "\n".join(rendering.record(record))
        yield from rendering.open_calls(self.calls.calls())

    def _html(self) -> Iterator[str]:
        """The pieces of a page."""
        try:
            # Imported here: no other format needs Markdown and its colours.
            from steno_view.document import Document  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise BadRequest(
                f"--format html needs {error.name}: install it with `{extra_command('view')}`"
            ) from None
        document = Document(self._stat, time.monotonic)
        yield document.head()
        for record, original in self._records():
            yield document.record(record, original)
        yield document.foot(self.damaged)

    def _records(self) -> Iterator[tuple[Record, Record]]:
        """Each record, masked and as it is."""
        records = self._session.records(until=self._stat.head)
        for record in records:
            self.calls.add(record)
            masked = masked_record(self._redactor, record)
            self.masked += masked is not record
            yield masked, record
            self._progress.add(len(record.raw))
        self.damaged = records.damaged
        if self._closes:
            for record in self._closing():
                yield record, record

    def _closing(self) -> Iterator[Record]:
        """A result for each call that has none, behind the last record."""
        generation, line = Position.parse(self._stat.head)
        for message in closing(self.calls.calls()):
            raw = msgspec.json.encode(message) + b"\n"
            record = Record(Position(generation, line), message, raw)
            self.calls.add(record)
            yield record
            line += 1

    def _json(self) -> Iterator[str]:
        """The lines of one document, which may be larger than memory."""
        stat = contract.document(self._stat)
        head = {name: stat[name] for name in contract.EXPORT_HEAD}
        yield json.dumps(head, ensure_ascii=False)[:-1] + ',"records":['
        yield from _joined(self._document(contract.record(each)) for each, _ in self._records())
        yield '],"events":['
        events = self._session.wire_records()
        yield from _joined(self._document(contract.record(self._event(each))) for each in events)
        self.damaged += events.damaged
        yield '],"streams":{'
        for number, info in enumerate(self._session.streams()):
            yield f'{"," if number else ""}"{info.name}":['
            stream = self._session.stream(info.name).records(until=info.head)
            yield from _joined(
                self._document(contract.stream_record(self._stream_record(each))) for each in stream
            )
            self.damaged += stream.damaged
            yield "]"
        entries = [contract.document(entry) for entry in self._session.timeline()]
        timeline = json.dumps(self._redactor.value(entries), ensure_ascii=False)
        yield f'}},"timeline":{timeline},"damaged":{self.damaged}}}'

    def _event(self, event: WireRecord) -> WireRecord:
        self._progress.add(len(event.raw))
        raw = self._line(event.raw)
        return event if raw is event.raw else msgspec.structs.replace(event, raw=raw)

    def _stream_record(self, record: StreamRecord) -> StreamRecord:
        self._progress.add(len(record.data))
        data = self._line(record.data)
        return record if data is record.data else msgspec.structs.replace(record, data=data.strip())

    def _line(self, raw: bytes) -> bytes:
        masked = masked_line(self._redactor, raw)
        self.masked += masked is not raw
        return masked

    def _document(self, line: bytes) -> str:
        return line.decode().rstrip("\n")


def _joined(documents: Iterable[str]) -> Iterator[str]:
    """Documents one a line, with commas between them."""
    before = ""
    for document in documents:
        yield before + document
        before = ","
