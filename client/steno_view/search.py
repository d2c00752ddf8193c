"""Search over all sessions: the index filled in the background, and its results for the page.

A pass over the sessions runs in a thread of low priority while a page shows the search; nothing is
read before. SQLite is imported with the first search.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from steno import BlockingClient
from steno_protocol.errors import StenoError, Unreachable
from steno_view.limits import INDEX_PAUSE_S, SEARCH_PAGE_MAX
from steno_web.limits import SHUTDOWN_S

if TYPE_CHECKING:
    from steno_search.filling import Pass, Reading
    from steno_search.folder import IndexFolder
    from steno_search.hits import Hit, Page, Search, Shown

Connect = Callable[[], "tuple[BlockingClient, IndexFolder, Reading]"]
"""Connects a client for the threads of the search, and names the folder of the index and what reads
the texts of records for it, with their secrets masked."""


_NICENESS: Final = 10
"""The priority of the thread that fills the index: agents and pages go first."""


class SearchService:
    """The search of one viewer.

    Args:
        connect: called once, in a thread.
        shown: what is shown of a record; called before its words are marked and its text is cut.
    """

    def __init__(self, connect: Connect, shown: "Shown") -> None:
        self._connect = connect
        self._shown = shown
        self._parts: tuple[BlockingClient, IndexFolder, Reading] | None = None
        self._connecting = threading.Lock()
        # The records of the passes before the last one, and that: one value, as a thread sets it.
        self._passes: tuple[int, Pass | None] = 0, None
        self._thread: threading.Thread | None = None
        self._ended_at = float("-inf")
        self._error: str | None = None
        self._is_elsewhere = False
        self._is_damaged = False
        self._is_complete = False

    async def progress(self) -> dict[str, Any]:
        """How far the index is; a new pass begins if the last one ended a while ago.

        Returns:
            `running`, `done` and `total` bytes of the present pass, `added` records since the
            viewer began, whether every session was read once (`complete`), whether another process
            fills the index (`elsewhere`), sessions that could not be read (`failed`), and the
            `error` that ended the last pass.
        """
        is_running = self._thread is not None and self._thread.is_alive()
        if not is_running and time.monotonic() - self._ended_at > INDEX_PAUSE_S:
            self._begin()
            is_running = True
        before, run = self._passes
        return {
            "running": is_running,
            "done": 0 if run is None else run.bytes_done,
            "total": 0 if run is None else run.bytes_total,
            "added": before + _records_of(run),
            "complete": self._is_complete,
            "elsewhere": self._is_elsewhere,
            "failed": 0 if run is None else len(run.failed),
            "error": self._error,
        }

    async def find(self, search: "Search", offset: int) -> dict[str, Any]:
        """One page of results, each read from its session.

        Raises:
            BadRequest: the query has no word, or takes too long.
        """
        began_s = time.monotonic()
        page = await anyio.to_thread.run_sync(self._page, search, offset)
        hits = [] if page is None else [_document(hit) for hit in page.hits]
        return {
            "hits": hits,
            "count": 0 if page is None else page.count,
            "ranked": page is None or page.is_ranked,
            "next": None if page is None else page.next,
            "seconds": round(time.monotonic() - began_s, 4),
        }

    def close(self) -> None:
        """End the present pass after its batch, and close the client."""
        _, run = self._passes
        if run is not None:
            run.stopped.set()
        if self._thread is not None:
            self._thread.join(SHUTDOWN_S)
        if self._parts is not None:
            # A request that the daemon does not answer is left to the end of the process.
            with suppress(StenoError):
                self._parts[0].close()

    # --- in threads -------------------------------------------------------------------------------

    def _begin(self) -> None:
        # It ends with the process at the latest: SQLite takes back what it had not written.
        self._thread = threading.Thread(target=self._fill, name="search index", daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        try:
            self._fill_once()
            self._error = None
        except Unreachable:
            # The page shows that the daemon is away.
            self._error = None
        except StenoError as error:
            self._error = error.message
        finally:
            self._ended_at = time.monotonic()

    def _fill_once(self) -> None:
        from steno_search.filling import Pass, fill  # noqa: PLC0415

        client, folder, read = self._connected()
        before, last = self._passes
        run = Pass()
        self._passes = before + _records_of(last), run
        with folder.filling() as filling:
            self._is_elsewhere = filling is None
            if filling is None:
                index = folder.open()
                if index is not None:
                    with index:
                        self._is_complete = index.is_complete
                return
            anew, self._is_damaged = self._is_damaged, False
            try:
                fill(client, filling, read, run, anew=anew)
            finally:
                self._is_complete = filling.index.is_complete

    def _page(self, search: "Search", offset: int) -> "Page | None":
        from steno_search.hits import Searcher  # noqa: PLC0415
        from steno_search.index import Damaged  # noqa: PLC0415
        from steno_search.query import terms  # noqa: PLC0415
        from steno_search.searchable import searchable  # noqa: PLC0415

        terms(search.typed)
        client, folder, _ = self._connected()
        index = folder.open()
        if index is None:
            return None
        try:
            with index:
                return Searcher(client, searchable, self._shown).page(
                    index, search, offset, SEARCH_PAGE_MAX
                )
        except Damaged:
            # The next pass makes it anew.
            self._is_damaged, self._is_complete = True, False
            return None

    def _connected(self) -> "tuple[BlockingClient, IndexFolder, Reading]":
        with self._connecting:
            if self._parts is None:
                self._parts = self._connect()
            return self._parts


def _records_of(run: "Pass | None") -> int:
    return 0 if run is None else run.records


def _document(hit: "Hit") -> dict[str, Any]:
    """A result with the piece of its text around the found words."""
    from steno_search.context import snippet  # noqa: PLC0415

    piece = snippet(hit.marked)
    by = hit.record.record.get("_by")
    return {
        "session": hit.session,
        "at": str(hit.record.cursor),
        "role": hit.role,
        "by": by if isinstance(by, str) else None,
        "time": hit.at,
        "parts": piece.parts,
        "before": piece.is_cut_before,
        "after": piece.is_cut_after,
    }
