"""The worker of `steno compact --watch`: it compacts what is due while agents go on writing."""

from collections.abc import Callable
from dataclasses import dataclass

import anyio
import anyio.abc

from steno._async.client import Client
from steno._sansio.summaries import Summarize
from steno.cli.compaction.progress import compacted_in_words
from steno.cli.compaction.schedule import Book
from steno.cli.render import contract
from steno.cli.render.output import Output
from steno.cli.render.wording import count, duration
from steno.llm_limits import WATCH_COMPACTIONS_MAX
from steno.values import Compacted
from steno_protocol.errors import NotFound, StenoError
from steno_protocol.replies import SessionEntry


@dataclass(frozen=True, slots=True)
class Rule:
    """What a worker does.

    Attributes:
        prefix: of the ids of the sessions that it looks after.
        is_due: whether a context of so many tokens is to be compacted.
        interval_s: how often it looks which sessions changed.
    """

    prefix: str
    is_due: Callable[[int], bool]
    preserve: int
    instruction: str | None
    why: str | None
    interval_s: float

    def is_for(self, session: str) -> bool:
        """Sessions of a mount only when the prefix names it.

        Another program may have them in its memory, and would not notice a rewrite.
        """
        return session.startswith(self.prefix) and (":" in self.prefix or ":" not in session)


class Watch:
    """Looks after sessions until it is cancelled; one that fails does not stop the others."""

    def __init__(self, client: Client, summarize: Summarize, rule: Rule, output: Output) -> None:
        self._client = client
        self._summarize = summarize
        self._rule = rule
        self._output = output
        self._book = Book()
        self._places = anyio.CapacityLimiter(WATCH_COMPACTIONS_MAX)
        self._list_failed = False

    async def run(self) -> None:
        """Work; a compaction that is under way when this is cancelled is given up."""
        prefix = self._rule.prefix
        whose = f"the sessions that begin with {prefix}" if prefix else "the sessions of the root"
        self._output.say(f"watching {whose}, every {duration(self._rule.interval_s)}")
        async with anyio.create_task_group() as tasks:
            while True:
                await self._look(tasks)
                await anyio.sleep(self._rule.interval_s)

    async def _look(self, tasks: anyio.abc.TaskGroup) -> None:
        try:
            entries = await self._client.sessions(self._rule.prefix, archived="no")
        except StenoError as error:
            self._print_once(error)
            return
        self._list_failed = False
        ours = [entry for entry in entries if self._rule.is_for(entry.session)]
        for entry in self._book.to_look_at(ours, anyio.current_time()):
            if await self._is_due(entry):
                self._book.begun(entry.session)
                tasks.start_soon(self._compact, entry.session)

    async def _is_due(self, entry: SessionEntry) -> bool:
        # Noted before it is asked for: what is written meanwhile is looked at next time.
        self._book.looked(entry)
        try:
            stat = await self._client.stat(entry.session)
        except NotFound:
            return False
        except StenoError as error:
            self._failed(entry.session, str(error))
            return False
        return self._rule.is_due(stat.token_count_with_pending)

    async def _compact(self, session: str) -> None:
        async with self._places:
            try:
                done = await self._client.session(session).compact(
                    self._summarize,
                    preserve=self._rule.preserve,
                    instruction=self._rule.instruction,
                    why=self._rule.why,
                )
                await self._take_in(session, done)
            except StenoError as error:
                self._failed(session, str(error))

    async def _take_in(self, session: str, done: Compacted | None) -> None:
        if done is None:
            # It is due, but for what stays as it is: only more messages change that.
            self._book.ended(session)
            return
        self._print_result(session, done)
        stat = await self._client.stat(session)
        tokens = stat.token_count_with_pending
        if self._rule.is_due(tokens):
            # Else the model would be asked at each new message.
            self._failed(session, f"{session} still has {count(tokens, 'token')}: preserve fewer")
        else:
            self._book.ended(session)

    def _print_result(self, session: str, done: Compacted) -> None:
        if self._output.as_json:
            self._output.document(contract.compacted(session, done))
        else:
            self._output.write(f"{session} {done.ack.head}")
            self._output.say(f"{session}: {compacted_in_words(done.messages, done.tokens)}")
        self._output.flush()

    def _failed(self, session: str, what: str) -> None:
        pause_s = self._book.failed(session, anyio.current_time())
        self._output.say(f"{session}: {what}; tried again in {duration(pause_s)}")

    def _print_once(self, error: StenoError) -> None:
        if not self._list_failed:
            self._output.say(f"the sessions cannot be listed, which is tried again: {error}")
        self._list_failed = True
