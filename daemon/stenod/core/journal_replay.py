"""Replay of a folder's messages: which changes took effect, and the manifest afterwards."""

from steno_protocol.journal_entries import AnyEntry, decode_entries
from stenod.core.manifest import Manifest


class JournalReplay:
    """The manifest of a folder after its messages up to one of them.

    The parts of a change count once its last message came. A message of another kind between them
    voids them: their publisher died, or lost the folder.

    Args:
        manifest: the files before the first message.

    Attributes:
        manifest: the files after the last message.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._parts: list[AnyEntry] = []
        self._is_snapshot = False

    def feed(self, kind: str, body: bytes) -> list[AnyEntry | None]:
        """Apply one message.

        Args:
            kind: the kind of the message, as `Kind` of the journal.
            body: its content.

        Returns:
            The entries that took effect; None stands for an empty folder, which a snapshot begins
            with.

        Raises:
            Corrupt: the message is no change, or contradicts the ones before.
        """
        match kind:
            case "part":
                self._parts += decode_entries(body)
                return []
            case "snapshot":
                self._parts, self._is_snapshot = decode_entries(body), True
                return []
            case "change":
                return self._change([*self._parts, *decode_entries(body)])
            case _:
                self._parts, self._is_snapshot = [], False
                return []

    def _change(self, entries: list[AnyEntry]) -> list[AnyEntry | None]:
        is_snapshot, self._is_snapshot, self._parts = self._is_snapshot, False, []
        if is_snapshot:
            # Its files keep their numbers.
            self.manifest = Manifest()
        for entry in entries:
            self.manifest.apply(entry)
        return [None, *entries] if is_snapshot else [*entries]
