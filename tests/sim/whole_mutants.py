"""Guards between tasks, connections and files taken out: each has to make whole seeds fail."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import PropertyMock, patch

from sim.whole import play_whole
from steno._sansio import exchange, follower
from steno._sansio.follower import Follower
from steno._sansio.pending import Pending
from steno_protocol.commands import Subscribe
from stenod.core.keys import KeyTable
from stenod.feed.feed import Feed
from stenod.sessions import registry
from stenod.sessions.operations import Operations
from stenod.store.jsonl import JsonlLog
from stenod.writer import writer


@dataclass(frozen=True, slots=True)
class Patch:
    """Something else in the place of a guard."""

    target: Any
    name: str
    instead: Any


def _without_incarnation(**fields: Any) -> Subscribe:
    return Subscribe(**{**fields, "incarnation": None})


def _as_it_is(error: Exception, *_: Any, **__: Any) -> Exception:
    return error


async def _found_or_not(self: Operations, command: Any, find: Callable[[], Any]) -> Any:
    return await self._services.read(find)


def _never(*_: Any, **__: Any) -> bool:
    return False


def _nothing(*_: Any, **__: Any) -> None:
    return None


_forget_oldest = KeyTable._forget_oldest


def _forgotten_in_silence(self: KeyTable, count: int) -> None:
    youngest_ms = self._youngest_ms
    _forget_oldest(self, count)
    self._youngest_ms = youngest_ms


def _each_log_by_itself(logs: Sequence[JsonlLog]) -> list[OSError | None]:
    errors = logs[0]._disk.fdatasync_all([log._file.handle for log in logs])
    for log, error in zip(logs, errors, strict=True):
        if error is None:
            log._synced()
        else:
            log._failed_syncs.add(log._identity)
    return errors


def _believed_at_once(self: Pending, error: Any) -> Any:
    return error


@dataclass(frozen=True, slots=True)
class WholeMutant:
    """One guard that is missing.

    Attributes:
        patches: what stands in its place.
        try_first: a seed that noticed it once; only speed depends on it.
    """

    patches: Sequence[Patch]
    try_first: int = 0


WHOLE_MUTANTS = {
    "a resend that does not say that it is one": WholeMutant(
        [Patch(exchange, "Mutation", ())], 163
    ),
    "a timeout that counts as a refusal": WholeMutant(
        [Patch(Pending, "outcome", _believed_at_once)], 0
    ),
    "a refusal of a repeat that nobody could look up": WholeMutant(
        [
            Patch(registry, "doubted", _as_it_is),
            Patch(writer, "doubted", _as_it_is),
        ],
        46,
    ),
    "a fork that was made before and cannot be seen": WholeMutant(
        [Patch(Operations, "_done_before", _found_or_not)], 1247
    ),
    "a follower that begins anew after each reconnect": WholeMutant(
        [Patch(Follower, "resume_after", PropertyMock(return_value="start"))], 0
    ),
    "a follower that does not know which session it followed": WholeMutant(
        [Patch(follower, "Subscribe", _without_incarnation)], 32
    ),
    "a mirror that ends when the disk fails for a moment": WholeMutant(
        [Patch(Follower, "is_asked_again_after", _never)], 21
    ),
    "a key that was forgotten, as if it had never been": WholeMutant(
        [Patch(KeyTable, "_forget_oldest", _forgotten_in_silence)], 23
    ),
    "a group whose files each have a verdict of their own": WholeMutant(
        [Patch(JsonlLog, "sync_all", staticmethod(_each_log_by_itself))], 194
    ),
    "a rewrite that followers are not told of": WholeMutant([Patch(Feed, "reset", _nothing)], 0),
}
"""Every guard that whole seeds are known to miss."""


def first_failing_whole_seed(
    mutant: WholeMutant, seeds: Iterable[int], play: Callable[[int], object] = play_whole
) -> int | None:
    """A seed that notices that the guard is missing."""
    with ExitStack() as held:
        for each in mutant.patches:
            held.enter_context(patch.object(each.target, each.name, each.instead))
        for seed in (mutant.try_first, *seeds):
            try:
                play(seed)
            except AssertionError:
                return seed
    return None
