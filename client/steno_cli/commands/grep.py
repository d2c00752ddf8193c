"""`steno grep`: text in the messages of many sessions, also in the full-text index."""

import re
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from steno import BlockingClient
from steno.values import Record
from steno_cli.arguments import argument, between, command, flag, prefix_argument, role
from steno_cli.command_limits import INDEXED_HITS_MAX, INDEXED_HITS_SHOWN_MAX
from steno_cli.configuration import redactor_of
from steno_cli.connection import connected
from steno_cli.exits import Exit, WrongUsage
from steno_cli.origins import Programs, program_option
from steno_cli.records import Since, report_damaged, since_option
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress
from steno_cli.session_files import SessionFiles
from steno_present import contract
from steno_present.messages import written_at
from steno_present.safe_text import printable
from steno_present.wording import moment
from steno_protocol.errors import BadRequest, NotFound, OutcomeUnknown, StenoError, Unreachable
from steno_redact.records import shown_records
from steno_search.matching import Match, matches

if TYPE_CHECKING:
    from steno_search.hits import Search as IndexedWords
    from steno_search.prefilter import Prefilter

_LIKE_A_REGEX: Final = re.compile(r"\\[A-Za-z]|\.[*+?]|\[[^\]]*\]|^\^|\$$|\||\(\?")
"""What hardly anybody types who means words."""

_BLOCK_BYTES: Final = 1 << 20
"""Bytes of a file that are looked at together."""


class Hit(NamedTuple):
    """A record with a matching line of its texts."""

    record: Record
    match: Match


class Search:
    """A search through sessions.

    Args:
        pattern: the expression to find.
        role: of the messages to search; None for all.
        progress: shows the bytes that were searched.
        shown: what is searched and printed of a record.
        prefilter: tells what need not be searched; None if it cannot be told.
        files: the sessions' files on this machine.

    Attributes:
        damaged: skipped lines that were no records, of the sessions that were searched.
    """

    def __init__(
        self,
        pattern: re.Pattern[str],
        role: str | None,
        since: float | None,
        progress: Progress,
        shown: Callable[[Record], Record],
        prefilter: "Prefilter | None",
        files: SessionFiles,
    ) -> None:
        self._pattern = pattern
        self._shown = shown
        self._prefilter = prefilter
        self._files = files
        self._role = role
        self._since = since
        self._progress = progress
        self.damaged: int = 0

    def hits(self, client: BlockingClient, session: str) -> Iterator[Hit]:
        """The hits in a session, in order; none if the session was deleted meanwhile."""
        if not self._may_match(session):
            return
        records = client.session(session).records()
        try:
            for record in Since(self._since).records(self._counted(records)):
                if self._role is None or record.record.get("role") == self._role:
                    yield from self._in_record(record)
        except NotFound:
            return
        finally:
            self.damaged += records.damaged

    def _may_match(self, session: str) -> bool:
        """Tell from its file whether a session has to be searched.

        Nothing is shown of what the file has: the daemon is asked for every session that may match.
        """
        if self._prefilter is None:
            return True
        try:
            file = self._files.open_context(session)
            if file is None:
                return True
            with file:
                blocks = iter(partial(file.read, _BLOCK_BYTES), b"")
                return self._prefilter.may_match_any(blocks)
        except OSError:
            # The daemon knows what is wrong.
            return True

    def _counted(self, records: Iterator[Record]) -> Iterator[Record]:
        """The records, each counted for the progress."""
        for record in records:
            self._progress.add(len(record.raw))
            yield record

    def _in_record(self, record: Record) -> Iterator[Hit]:
        if self._prefilter is not None and not self._prefilter.may_match(record.raw):
            return
        record = self._shown(record)
        for match in matches(record.record, self._find):
            yield Hit(record, match)

    def _find(self, text: str) -> tuple[int, int] | None:
        found = self._pattern.search(text)
        return None if found is None else found.span()


@command(
    "grep",
    "Searches texts, thoughts, tool calls and their results. Prints each matching line with"
    " its session, cursor and time. Archived sessions are included. Exits with 4 if nothing"
    " matches.",
    argument("pattern", metavar="PATTERN", help="a Python regular expression"),
    prefix_argument("only sessions whose id starts with PREFIX (default: all)"),
    flag("-i", "--ignore-case", help="ignore case"),
    flag("-F", "--fixed-strings", help="PATTERN is plain text"),
    flag("-l", "--files-with-matches", help="print only the ids of matching sessions"),
    argument("--role", metavar="ROLE", type=role, help="only in messages of this role"),
    since_option,
    program_option,
    flag("--redact", help="search and print texts with their secrets masked"),
    flag("--index", help="search words in the full-text index, which is brought up to date first"),
    argument(
        "--order", choices=("relevance", "time"),
        help="with --index: the best matches first, or the newest (default: relevance)",
    ),
    argument(
        "--limit", metavar="N", type=between(1, INDEXED_HITS_MAX),
        help=f"with --index: at most N matches (default: {INDEXED_HITS_SHOWN_MAX})",
    ),
    example="steno grep -i 'no space left' kimi: --role tool\nsteno grep -l TODO",
)  # fmt: skip
def run(options: Namespace, output: Output) -> int:
    """Print every hit; an unreadable session does not end the search."""
    if options.index:
        return _run_indexed(options, output)
    if options.order is not None or options.limit is not None:
        raise WrongUsage("--order and --limit need --index: a regular expression has no best match")
    pattern = _pattern(options)
    has_sessions = has_hits = has_failed = False
    with connected(options, output=output) as client, Progress(output, "searching") as progress:
        search = Search(
            pattern,
            options.role,
            options.since,
            progress,
            _shown(options),
            _prefilter(options),
            SessionFiles(client),
        )
        listed = client.sessions(options.prefix or "")
        sessions = [*Programs(client, options.programs).chosen(listed)]
        for entry in progress.over_bytes(sessions, [each.bytes for each in sessions]):
            has_sessions = True
            try:
                for hit in search.hits(client, entry.session):
                    has_hits = True
                    progress.make_room()
                    _print(options, output, entry.session, hit)
                    if options.files_with_matches:
                        break
            except (Unreachable, OutcomeUnknown):
                # No daemon answers for the other sessions either.
                raise
            except StenoError as error:
                has_failed = True
                progress.make_room()
                output.error(error)
            output.flush()
    report_damaged(output, search.damaged)
    if not has_sessions:
        _say_none(options, output)
    if has_failed:
        return Exit.FAILED
    return Exit.DONE if has_hits else Exit.NOT_FOUND


def _say_none(options: Namespace, output: Output) -> None:
    """Say that there was nothing to search, if the options are the reason."""
    of = f" of {' or '.join(options.programs)}" if options.programs else ""
    if options.prefix:
        output.say(f"no session{of} begins with {options.prefix!r}")
    elif of:
        output.say(f"there is no session{of}")


def _prefilter(options: Namespace) -> "Prefilter | None":
    """What tells where the pattern cannot match; a mask may have words that the bytes lack."""
    # Imported here: this module of the search is needed by no other form of the command.
    from steno_search.prefilter import prefilter_of  # noqa: PLC0415

    if options.redact:
        return None
    is_text, ignore_case = options.fixed_strings, options.ignore_case
    return prefilter_of(options.pattern, is_text=is_text, ignore_case=ignore_case)


def _run_indexed(options: Namespace, output: Output) -> int:
    """Print the hits of the full-text index."""
    # Imported here: no other search needs SQLite.
    from steno_cli.indexed_search import IndexedSearch, counted, index_folder  # noqa: PLC0415

    asked = _words(options, output)
    printed: set[str] = set()
    limit = options.limit or INDEXED_HITS_SHOWN_MAX
    with connected(options, output=output) as client:
        folder, read = index_folder(options, client.welcome.root)
        search = IndexedSearch(client, folder, read, _shown(options), output)
        search.update()
        hits = search.hits(asked, limit)
    for hit in hits:
        if not options.files_with_matches or hit.session not in printed:
            _print(options, output, hit.session, _best(hit.record, hit.marked))
        printed.add(hit.session)
    output.flush()
    for error in search.failed:
        output.error(error)
    if len(hits) == limit and search.count > limit:
        order = "best" if search.is_ranked else "newest"
        output.say(
            f"these are the {order} {limit} of {counted(search.count)} matches: --limit prints more"
        )
    if search.failed:
        return Exit.FAILED
    return Exit.DONE if hits else Exit.NOT_FOUND


def _shown(options: Namespace) -> Callable[[Record], Record]:
    """What is searched and printed of a record."""
    return shown_records(redactor_of(options) if options.redact else None)


def _words(options: Namespace, output: Output) -> "IndexedWords":
    """The search of the options.

    Raises:
        WrongUsage: they contradict each other, or contain no word.
    """
    from steno_search.hits import Search as IndexedWords  # noqa: PLC0415
    from steno_search.query import Filters, terms  # noqa: PLC0415

    if options.programs:
        raise WrongUsage(
            "--program is for a search without --index: give a PREFIX instead, such as codex/"
        )
    if options.fixed_strings:
        raise WrongUsage("-F is for a search without --index, which finds words, not characters")
    try:
        terms(options.pattern)
    except BadRequest as error:
        raise WrongUsage(error.message) from None
    if _LIKE_A_REGEX.search(options.pattern):
        output.say("--index finds words, and takes no regular expression: leave it out to use one")
    filters = Filters(options.role, options.prefix or "", options.since)
    return IndexedWords(options.pattern, filters, options.order or "relevance")


def _best(record: Record, marked: list[str]) -> Hit:
    """The best line of a record that the index found, with the place of its first word."""
    from steno_search.context import best_line  # noqa: PLC0415

    before, *found = best_line(marked)
    start = len(before)
    return Hit(record, Match(before + "".join(found), start, start + len("".join(found[:1]))))


def _pattern(options: Namespace) -> re.Pattern[str]:
    text = re.escape(options.pattern) if options.fixed_strings else options.pattern
    # ^ and $ match at every line of a text that is searched at once.
    flags = re.MULTILINE | (re.IGNORECASE if options.ignore_case else 0)
    try:
        return re.compile(text, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise WrongUsage(
            f"{options.pattern!r} is no regular expression: {error}; -F searches for plain text"
        ) from None


def _print(options: Namespace, output: Output, session: str, hit: Hit) -> None:
    if options.files_with_matches:
        output.answer({"session": session}, printable(session))
        return
    at = written_at(hit.record.record)
    role = str(hit.record.record.get("role"))
    if output.as_json:
        output.document(contract.hit(session, hit.record.cursor, at, role, hit.match.line))
        return
    head = f"{printable(session)}  {hit.record.cursor}  {moment(at) if at is not None else '-'}"
    room = None if output.width is None else max(20, output.width - len(head) - 2)
    before, found, after = _cut(hit, room)
    output.write(
        f"{output.style(head, 'dim')}  {before}{output.style(found, 'bold', 'red')}{after}"
    )


def _cut(hit: Hit, room: int | None) -> tuple[str, str, str]:
    """The line before, in and after the match, cut to the room around the match."""
    line, start, end = hit.match
    if room is None or len(line) <= room:
        parts = line[:start], line[start:end], line[end:]
    else:
        first = min(max(0, start - room // 3), max(0, len(line) - room))
        last = first + room
        head = "…" if first else ""
        tail = "…" if last < len(line) else ""
        begin, stop = first + len(head), last - len(tail)
        parts = (
            head + line[begin : max(begin, start)],
            line[max(begin, start) : min(end, stop)],
            line[max(begin, min(end, stop)) : stop] + tail,
        )
    before, found, after = (printable(part.replace("\t", " "), one_line=True) for part in parts)
    return before, found, after
