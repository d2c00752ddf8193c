"""What an import or a look at a file has done, and what there is to say of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from steno_agents.following import Damage
from steno_follow.foreign_source import ForeignSource
from steno_present.wording import count, number

_PLACES_SHOWN: Final = 3
"""Damaged lines whose places are named."""


@dataclass(slots=True)
class Imported:
    """What the first import of a transcript found in it.

    Attributes:
        branches: the generations with branches that were left.
        compactions: the generations that a compaction replaced.
        rolled_back: the generations whose last turns were withdrawn.
        unread: past histories that are too many to be generations.
        salvaged: records that were read from damaged lines.
        odd: messages in a form that the reader does not know.
        elsewhere: the session with the beginning of the conversation, if its file was not found.
        skipped: messages of the context that are too long for a record.
        undecoded: the number of lines without a whole record.
        damaged: the first of them.
        unfinished: the bytes of a last line without an end, which was not taken.
    """

    branches: int = 0
    compactions: int = 0
    rolled_back: int = 0
    unread: int = 0
    salvaged: int = 0
    odd: int = 0
    elsewhere: str | None = None
    skipped: int = 0
    undecoded: int = 0
    unfinished: int = 0
    damaged: Sequence[Damage] = ()


@dataclass(slots=True)
class Followed:
    """What one look at a file has changed in its session.

    Attributes:
        session: the id of the session.
        file_bytes: the bytes of the file that were added to the stream.
        companion_bytes: those of records with files beside it.
        messages: the records that were added to the context.
        was_rewritten: the file did not begin with what the stream had.
        was_reverted: earlier messages were replaced; they are a past generation.
        is_continued_here: others changed the context, so that it was left as it is.
        lost_beginning: the session with the beginning of a fork, if its file was there before and
            is not found; the context was left as it is.
        is_too_long: the file has more records than are followed; only its lines are kept.
        has_more: the file has more than one look takes in.
        skipped: messages that are too long for a record.
        damaged: the first new lines without a whole record.
        damaged_count: the number of all new ones.
    """

    session: str
    file_bytes: int = 0
    companion_bytes: int = 0
    messages: int = 0
    was_rewritten: bool = False
    was_reverted: bool = False
    is_continued_here: bool = False
    lost_beginning: str | None = None
    is_too_long: bool = False
    has_more: bool = False
    skipped: int = 0
    damaged: list[Damage] = field(default_factory=list[Damage])
    damaged_count: int = 0

    @property
    def has_changed(self) -> bool:
        """Whether anything was written."""
        added = self.file_bytes or self.companion_bytes or self.messages
        return bool(added or self.was_rewritten or self.was_reverted)


Outcome = Imported | Followed


def notes_of(found: Outcome, source: ForeignSource) -> Iterator[str]:
    """Yield what there is to say of what was done with a transcript."""
    if isinstance(found, Imported):
        yield from _histories(found, source.session)
        yield from left_out_of(found, source)
        if found.unfinished:
            yield (
                f"the last line of {source.origin} ({number(found.unfinished)} bytes) has no end"
                " and is left out: import it again once it is whole"
            )
    else:
        yield from _of_a_look(found, source)


def _histories(found: Imported, session: str) -> Iterator[str]:
    """The histories beside the live one, and where they are."""
    named = {
        ("other branch", "other branches"): found.branches,
        ("history before a compaction", "histories before a compaction"): found.compactions,
        ("history with withdrawn turns", "histories with withdrawn turns"): found.rolled_back,
    }
    past = sum(named.values())
    if past:
        what = ", ".join(
            f"{number(each)} {one if each == 1 else more}"
            for (one, more), each in named.items()
            if each
        )
        where = "generation 0" if past == 1 else f"generations 0 to {past - 1}"
        shown = f"`steno show {session} --generation {past - 1}`"
        yield f"{session} also has {what}, as {where}: {shown}"
    if found.unread:
        more = number(found.unread)
        yield f"{more} more past histories of {session} are kept in its stream only"


def left_out_of(found: Imported, source: ForeignSource) -> Iterator[str]:
    """Yield how much of the whole lines of a transcript is not in the context of its session."""
    session, only = source.session, "kept in its stream only"
    if found.skipped:
        yield f"{count(found.skipped, 'message')} of {session} too long for a record, {only}"
    if found.elsewhere:
        yield (
            f"{session} is a fork, and its beginning is elsewhere: the file of session"
            f" {found.elsewhere} is not beside it"
        )
    if found.salvaged:
        yield f"{count(found.salvaged, 'record')} of {session} saved from damaged lines"
    if found.odd:
        form = f"in a form of {source.format.program} that steno does not know"
        yield f"{count(found.odd, 'message')} of {session} {form}, {only}"
    if found.undecoded:
        what = "is no record" if found.undecoded == 1 else "are no records"
        places = _places(found.damaged, found.undecoded)
        yield f"{count(found.undecoded, 'line')} of {session} {what}, {only}: {places}"


def _of_a_look(found: Followed, source: ForeignSource) -> Iterator[str]:
    session, stream = found.session, source.format.stream
    left = f"the context of {session} is left as it is, and only its stream {stream} grows"
    if found.was_rewritten:
        yield (
            f"{source.file} was rewritten: {session} begins anew, and what it had stays as"
            f" past generations (`steno timeline {session}`)"
        )
    if found.is_continued_here:
        yield (
            f"{session} was changed in steno, so that its context is left as it is, and only"
            f" its stream {stream} grows: `steno fork {session} NAME` keeps your work, and after"
            f" `steno delete {session} --yes` an import takes the transcript"
        )
    if found.is_too_long:
        most = number(source.format.followed_records())
        yield f"{source.file} has more than {most} records: {left}"
    if found.lost_beginning:
        yield (
            f"{session} is a fork of {found.lost_beginning}, whose file is not there any more: its"
            f" context is left as it is, and only its stream {stream} grows"
        )
    if found.skipped:
        left_out = count(found.skipped, "message")
        yield f"{left_out} of {session} too long for a record, kept in its stream only"
    if found.damaged_count:
        places = _places(found.damaged, found.damaged_count)
        yield (
            f"{count(found.damaged_count, 'damaged line')} in {source.file} at {places}: kept in"
            f" the stream of {session} only"
        )


def _places(damaged: Sequence[Damage], whole: int) -> str:
    places = ", ".join(f"byte {each.offset}" for each in damaged[:_PLACES_SHOWN])
    return f"{places} ..." if whole > _PLACES_SHOWN else places
