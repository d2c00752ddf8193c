"""What a blocking session does to be compacted; the verb is that of `CompactionSession`."""

from contextlib import suppress

from steno._sansio.compaction import Begun, Compacting, check_asking, lease_ms
from steno._sansio.reading import PastReader
from steno._sansio.summaries import BlockingSummarize
from steno._sync.linked import BlockingLinkedSession
from steno._sync.streams import fetch
from steno.values import Compacted
from steno_protocol import commands, limits, replies
from steno_protocol.context import ContextState, Message
from steno_protocol.errors import StenoError


class BlockingCompactionSession(BlockingLinkedSession):
    """A session whose older messages a model can summarise."""

    def compact(
        self,
        summarize: BlockingSummarize,
        *,
        preserve: int = 2,
        instruction: str | None = None,
        why: str | None = None,
        key: str | None = None,
        lease: float = limits.COMPACTION_SILENT_LEASE_MS / 1000,
    ) -> Compacted | None:
        """Put a summary in place of all but the last messages, as one rewrite.

        As `Session.compact`, with a plain function. The lease is not renewed meanwhile, and a slow
        call is not ended.

        Args:
            lease: seconds after which others may begin, whatever became of this process.
        """
        check_asking(summarize, instruction)
        job = Compacting(self.id, self._link.name, key, preserve, lease_ms(lease))
        # Asked first: after a rewrite there may be nothing to do any more, and a model costs much.
        repeated = None if key is None else self._repeated(job)
        if repeated is not None:
            return repeated
        self._link.close_requests.add(job.abort)
        try:
            check = self._history_check
            begun = job.begun(self._link.ask(job.begin, replies.Compaction, check=check))
            if begun is None:
                return None
            summary = summarize(self._request(begun, instruction))
            ack = self._change(
                commands.CompactCommit, job.key, None, "synced",
                records=begun.commit_record(summary), **begun.commit_fields(summary, why),
            )  # fmt: skip
        except BaseException:
            self._abort(job)
            raise
        finally:
            self._link.close_requests.discard(job.abort)
        if ack.duplicate:
            # Only a rewrite ends the lease, and this time there was none.
            self._abort(job)
            # Another process with the same key was faster: its summary was put in, not this one.
            repeated = self._repeated(job)
        return repeated or begun.result(ack, summary)

    def _repeated(self, job: Compacting) -> Compacted | None:
        """What the first command of this key did, None when there was none."""
        asked = commands.Timeline(session=self.id)
        applied = job.applied((self._link.ask(asked, replies.TimelineReport)).entries)
        if applied is None:
            return None
        made = self._state_of(applied.made())
        summarised = self._state_of(applied.summarised())
        ack = self._change(
            commands.CompactCommit, job.key, None, "synced",
            records=applied.commit_record(made), **applied.commit_fields(),
        )  # fmt: skip
        return applied.result(ack, made, summarised)

    def _request(self, begun: Begun, instruction: str | None) -> list[Message]:
        return begun.request(self._state_of(begun.past()), instruction)

    def _state_of(self, past: PastReader) -> ContextState:
        while fetch(self._link, past.reader):
            past.absorb()
        return past.state()

    def _abort(self, job: Compacting) -> None:
        with suppress(StenoError):
            self._link.ask(job.abort, replies.Done, limits.COMPACTION_ABORT_S)
