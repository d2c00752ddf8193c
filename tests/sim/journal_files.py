"""The files of a session as its messages in the journal say, worked out apart from the product."""

from steno_protocol.journal_entries import AnyEntry, Append, Copy, Create, Cut, Name, decode_entries
from stenod_cluster.journal import Kind, Message, subject_of_name
from support.memory_journal import MemoryStream


class JournalFiles:
    """The files of one session, kept up to date with the servers' messages.

    Args:
        stream: the servers.
        name: the name of the session.
    """

    def __init__(self, stream: MemoryStream, name: str) -> None:
        self._stream = stream
        self._name = name
        self._last = 0
        self._is_snapshot = False
        self._parts: list[AnyEntry] = []
        self._files: dict[int, bytes] = {}
        self._names: dict[str, int] = {}

    def now(self) -> dict[str, bytes]:
        """The content of each name."""
        for message in self._messages():
            assert isinstance(message, Message)
            if message.sequence > self._last:
                self._take(message)
        return {name: self._files[number] for name, number in self._names.items()}

    @property
    def last(self) -> Message | None:
        """The last message."""
        messages = self._messages()
        return messages[-1] if messages and isinstance(messages[-1], Message) else None

    def _messages(self) -> list[Message | int]:
        labels = self._stream._messages.get(subject_of_name(self._name), [])
        label = labels[-1] if labels else None
        if not isinstance(label, Message):
            return []
        return self._stream._messages.get(label.label.identity, [])

    def _take(self, message: Message) -> None:
        self._last = message.sequence
        match message.kind:
            case Kind.FORK:
                source, position = message.label
                self._begin_with(source, int(position))
            case Kind.PART:
                self._parts += decode_entries(message.body)
            case Kind.SNAPSHOT:
                self._parts, self._is_snapshot = decode_entries(message.body), True
            case Kind.CHANGE:
                if self._is_snapshot:
                    self._files, self._names, self._is_snapshot = {}, {}, False
                for entry in [*self._parts, *decode_entries(message.body)]:
                    self._apply(entry)
                self._parts = []
            case _:
                self._parts, self._is_snapshot = [], False

    def _begin_with(self, identity: str, position: int) -> None:
        """Take the files of another session as its messages up to a position say."""
        source = JournalFiles(self._stream, self._name)
        for message in self._stream._messages[identity]:
            assert isinstance(message, Message)
            if message.sequence <= position:
                source._take(message)
        assert source._last == position, f"message {position} of {identity} is gone"
        self._files, self._names = source._files, source._names

    def _apply(self, entry: AnyEntry) -> None:
        match entry:
            case Create():
                assert entry.file not in self._files, f"{entry}: the file is there"
                self._files[entry.file] = b""
                self._names[entry.name] = entry.file
            case Append():
                self._extend(entry.file, entry.offset, entry.data)
            case Copy():
                end = entry.source_offset + entry.size
                data = self._files[entry.source][entry.source_offset : end]
                assert len(data) == entry.size, f"{entry}: the source is too short"
                self._extend(entry.file, entry.offset, data)
            case Cut():
                self._files[entry.file] = self._files[entry.file][: entry.size]
            case Name():
                self._names.pop(entry.name, None)
                if entry.file is not None:
                    self._names[entry.name] = entry.file

    def _extend(self, file: int, offset: int, data: bytes) -> None:
        assert len(self._files[file]) == offset, f"file {file} does not end at {offset}"
        self._files[file] += data
