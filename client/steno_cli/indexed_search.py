"""Searches in the full-text index of all sessions, which is brought up to date first."""

from argparse import Namespace
from collections.abc import Iterator

from steno import BlockingClient
from steno_cli.configuration import redactor_of
from steno_cli.connection import endpoint_of
from steno_cli.render.output import Output
from steno_cli.render.progress import Progress
from steno_protocol.errors import StenoError, StorageFailed
from steno_protocol.paths import is_remote
from steno_redact.records import masked_record
from steno_redact.redactor import Redactor
from steno_search.filling import Pass, Reading, fill
from steno_search.folder import IndexFolder, cache_folder
from steno_search.hits import Hit, Search, Searcher, Shown
from steno_search.index import Damaged
from steno_search.limits import COUNTED_MAX, LOCK_WAIT_S, PAGE_MAX
from steno_search.searchable import searchable


def index_folder(options: Namespace, root: str) -> tuple[IndexFolder, Reading]:
    """The index of the daemon that the options name, and what reads the texts of records for it.

    The texts are masked: no secret is in the index, and no search finds a word of one.
    """
    endpoint = endpoint_of(options)
    of = endpoint if endpoint is not None and is_remote(endpoint) else root
    redactor = redactor_of(options)
    return IndexFolder(cache_folder(), of, redactor.fingerprint), masked_reading(redactor)


def masked_reading(redactor: Redactor) -> Reading:
    """What reads the texts of a record for the index, with its secrets masked."""
    return lambda record: searchable(masked_record(redactor, record))


class IndexedSearch:
    """A search of one command.

    Attributes:
        failed: the errors of the sessions that could not be read.
        count: how many records the index found, at most `COUNTED_MAX`.
        is_ranked: they were ordered by relevance.
    """

    def __init__(
        self,
        client: BlockingClient,
        folder: IndexFolder,
        read: Reading,
        shown: Shown,
        output: Output,
    ) -> None:
        self._client = client
        self._folder = folder
        self._read = read
        self._shown = shown
        self._output = output
        self.failed: list[StenoError] = []
        self.count: int = 0
        self.is_ranked: bool = False

    def update(self, *, anew: bool = False) -> None:
        """Read what is new in the sessions into the index, or all into an empty one."""
        run = Pass()
        with Progress(self._output, "indexing") as progress:

            def advanced() -> None:
                progress.show_bytes(run.bytes_done, run.bytes_total, f"{run.records} records")

            def waiting() -> None:
                progress.show("another process fills the index")

            with self._folder.filling(LOCK_WAIT_S, waiting) as filling:
                if filling is not None:
                    fill(self._client, filling, self._read, run, advanced, anew=anew)
        if filling is None:
            self._output.say(
                "another process fills the index, so that results may be missing: repeat the"
                " search later"
            )
        self.failed = run.failed

    def hits(self, search: Search, limit: int) -> list[Hit]:
        """The first results; a damaged index is made again."""
        try:
            return list(self._hits(search, limit))
        except Damaged:
            self.update(anew=True)
        try:
            return list(self._hits(search, limit))
        except Damaged as error:
            raise StorageFailed(
                f"the search index was made anew and is damaged again ({error}): check the disk"
                f" of {self._folder.path}"
            ) from None

    def _hits(self, search: Search, limit: int) -> Iterator[Hit]:
        index = self._folder.open()
        if index is None:
            return
        searcher = Searcher(self._client, searchable, self._shown)
        with index:
            offset: int | None = 0
            while offset is not None and limit > 0:
                page = searcher.page(index, search, offset, min(limit, PAGE_MAX))
                self.count, self.is_ranked, offset = page.count, page.is_ranked, page.next
                limit -= len(page.hits)
                yield from page.hits


def counted(count: int) -> str:
    """A count of results in words."""
    return f"{COUNTED_MAX} or more" if count >= COUNTED_MAX else str(count)
