"""The lock that serialises the calls on an adapter."""

import threading

import anyio

from steno_protocol.errors import BadRequest


class Turns:
    """A lock for the tasks of one event loop at a time.

    An anyio lock that two loops use at once does not wake waiters in the other loop, and then seems
    to be held by another task. The original classes belong to one loop as well.
    """

    def __init__(self) -> None:
        self._lock = anyio.Lock()
        self._guard = threading.Lock()
        self._thread = 0
        self._calls = 0

    def __reduce__(self) -> "tuple[type[Turns], tuple[()]]":
        """Give a copy of the owner, also in another process, a lock of its own."""
        return Turns, ()

    async def __aenter__(self) -> None:
        """Wait for a turn.

        Raises:
            BadRequest: a task of another thread's loop has the turn, or waits for it.
        """
        with self._guard:
            if self._calls and self._thread != threading.get_ident():
                raise BadRequest(
                    "another thread is in a call on this object, so this one was not begun: give"
                    " each event loop an object of its own, they may all have the same path"
                )
            self._thread = threading.get_ident()
            self._calls += 1
        try:
            await self._lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
        self._leave()

    def _leave(self) -> None:
        with self._guard:
            self._calls -= 1
