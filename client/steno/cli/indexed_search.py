"""Searches in the full-text index of all sessions, which is brought up to date first."""

from argparse import Namespace
from collections.abc import Iterator

from steno._sync.client import BlockingClient
from steno.cli.connection import endpoint_of
from steno.cli.render.output import Output
from steno.cli.render.progress import Progress
from steno.cli.render.searchable import searchable
from steno.search_index.filling import Pass, fill
from steno.search_index.folder import IndexFolder, cache_folder
from steno.search_index.hits import Hit, Search, Searcher
from steno.search_index.limits import COUNTED_MAX, LOCK_WAIT_S, PAGE_MAX
from steno_protocol.errors import StenoError
from steno_protocol.paths import is_remote


def index_folder(options: Namespace, root: str) -> IndexFolder:
    """The index of the daemon that the options name.

    Args:
        options: of the command.
        root: the root of the daemon, on its machine.
    """
    endpoint = endpoint_of(options)
    of = endpoint if endpoint is not None and is_remote(endpoint) else root
    return IndexFolder(cache_folder(), of)


class IndexedSearch:
    """A search of one command.

    Args:
        client: a client of the daemon.
        folder: the index.
        output: shows the progress, and what the results lack.

    Attributes:
        failed: the errors of the sessions that could not be read.
        count: how many records the index found, at most `COUNTED_MAX`.
    """

    def __init__(self, client: BlockingClient, folder: IndexFolder, output: Output) -> None:
        self._client = client
        self._folder = folder
        self._output = output
        self.failed: list[StenoError] = []
        self.count: int = 0

    def update(self) -> None:
        """Read what is new in the sessions into the index."""
        run = Pass()
        with Progress(self._output, "indexing") as progress:

            def advanced() -> None:
                progress.show_bytes(run.bytes_done, run.bytes_total, f"{run.records} records")

            def waiting() -> None:
                progress.show("another process fills the index")

            with self._folder.filling(LOCK_WAIT_S, waiting) as filling:
                if filling is not None:
                    fill(self._client, filling, searchable, run, advanced)
        if filling is None:
            self._output.say(
                "another process fills the index, so that results may be missing: repeat the"
                " search later"
            )
        self.failed = run.failed

    def hits(self, search: Search, limit: int) -> Iterator[Hit]:
        """The first results, page by page."""
        index = self._folder.open()
        if index is None:
            return
        searcher = Searcher(self._client, searchable)
        with index:
            offset: int | None = 0
            while offset is not None and limit > 0:
                page = searcher.page(index, search, offset, min(limit, PAGE_MAX))
                self.count, offset = page.count, page.next
                if not page.is_ranked and search.order == "relevance":
                    self._output.say(
                        f"{counted(page.count)} records match, so that the newest come first: more"
                        " words give fewer"
                    )
                    search = Search(search.typed, search.filters, "time")
                limit -= len(page.hits)
                yield from page.hits


def counted(count: int) -> str:
    """A count of results in words."""
    return f"{COUNTED_MAX} or more" if count >= COUNTED_MAX else str(count)
