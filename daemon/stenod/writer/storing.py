"""How batches get to the disk: on the event loop, inline or awaited, or in a thread."""

from collections.abc import Callable, Sequence
from functools import partial

from anyio import CancelScope

from steno_protocol import limits
from stenod.store.jsonl import JsonlLog
from stenod.writer.mailbox import Batch
from stenod.writer.services import Services


async def store_soon(batches: Sequence[Batch], services: Services) -> None:
    """Store batches as `store` does, without blocking the event loop for long.

    A disk of a cluster waits for other machines, and the event loop awaits them: a thread would
    cost two switches of threads there and back, a tenth of the time to the ack.
    """
    work = partial(store, batches, services.monotonic)
    if _is_awaited(batches):
        unsynced = _write(batches)
        if not unsynced or await _sync_on_loop(unsynced, services.monotonic):
            return
        work = partial(_sync, unsynced, services.monotonic)
    try:
        await services.commit(work, len(batches))
    except OSError as error:
        for batch in batches:
            batch.error = error


def store(batches: Sequence[Batch], clock: Callable[[], float]) -> None:
    """Write batches of different sessions, then make the `synced` ones durable together.

    An error is stored in its batch. The files that are synced share one verdict: if one sync fails,
    none of them is durable.
    """
    unsynced = _write(batches)
    if unsynced:
        _sync(unsynced, clock)


def _is_awaited(batches: Sequence[Batch]) -> bool:
    logs = [batch.opened.log for batch in batches]
    if not logs[0].has_rivals:
        return False
    size = sum(len(batch.data) for batch in batches) + sum(log.size - log.synced for log in logs)
    return size <= limits.LOOP_SYNC_BYTES_MAX


def _write(batches: Sequence[Batch]) -> list[Batch]:
    """Write the batches to their files; returns those that have to be synced."""
    unsynced: list[Batch] = []
    for batch in batches:
        try:
            if batch.data:
                batch.opened.log.append(batch.data)
        except OSError as error:
            batch.error = error
        else:
            if batch.synced:
                unsynced.append(batch)
    return unsynced


def _sync(unsynced: Sequence[Batch], clock: Callable[[], float]) -> None:
    started = clock()
    errors = JsonlLog.sync_all([batch.opened.log for batch in unsynced])
    _note_outcomes(unsynced, errors, clock() - started)


async def _sync_on_loop(unsynced: Sequence[Batch], clock: Callable[[], float]) -> bool:
    """Returns False if the disk has to block for it; nothing was done then."""
    started = clock()
    errors: list[OSError | None] | None = None
    # As with a thread: what was begun ends, whatever ends beside it.
    with CancelScope(shield=True):
        errors = await JsonlLog.sync_on_loop([batch.opened.log for batch in unsynced])
    if errors is None:
        return False
    _note_outcomes(unsynced, errors, clock() - started)
    return True


def _note_outcomes(
    batches: Sequence[Batch], errors: Sequence[OSError | None], took_s: float
) -> None:
    for batch, error in zip(batches, errors, strict=True):
        batch.sync_s, batch.error = took_s, error
