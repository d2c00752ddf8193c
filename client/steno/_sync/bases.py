"""The parts of the blocking client and session without an async source."""

from typing import Self

from steno._sansio.argument_checks import given_seconds
from steno._sansio.requests import PositionLike, position_text
from steno._sansio.view import NotPicklable, SessionView
from steno._sync.link import BlockingLink
from steno_protocol import replies
from steno_protocol.positions import Position


class ConnectedClient(NotPicklable):
    """A client that is connected until `close`."""

    def __init__(self, link: BlockingLink) -> None:
        self._link = link

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; closing twice is harmless. Waiting threads get Unreachable.

        Raises:
            Busy: another thread's request took longer than `timeout`; the client is still open.

        Example:
            >>> other = steno.connect_sync(name="worker")
            >>> other.close()
        """
        self._link.close()

    @property
    def welcome(self) -> replies.Welcome:
        """The identity and the limits of the daemon, as of the last connection.

        Example:
            >>> client.welcome.version == steno.__version__
            True
        """
        return self._link.welcome


class RefreshedSession(SessionView):
    """A session whose mirror is refreshed during calls."""

    _link: BlockingLink

    def refresh(self) -> None:
        """Take in what others wrote, as far as it has arrived.

        Raises:
            NotFound: the session cannot be followed any longer.

        Example:
            >>> session.refresh()
            >>> len(session.history)
            1
        """
        self._link.take_in(self._followed().follower)
        self._followed()

    def wait_for(self, position: PositionLike, timeout: float | None = None) -> bool:
        """Wait until this process's mirror contains everything before `position`.

        With the `head` of an ack of another process this is read-your-writes across processes.

        Args:
            position: a position of the context.
            timeout: seconds to wait; None is no limit.

        Returns:
            False when that took longer than `timeout`.

        Raises:
            BadRequest: the session is not followed, or the text is no position.
            NotFound: the session cannot be followed any longer.

        Example:
            >>> other = client.open("talk")
            >>> ack = other.append_message({"role": "assistant", "content": "Hello"})
            >>> session.wait_for(ack.head, timeout=10)
            True
        """
        target = Position.parse(position_text(position))
        given_seconds(timeout, "timeout")
        return self._link.reach(self._followed(), target, timeout)
