"""One attempt to connect and greet: its three outcomes, and the errors that explain them."""

import os
import time
from pathlib import Path

import msgspec

from steno._connect.connection import Connection, Futile, OutOfHandles
from steno._connect.target import Target, start_command
from steno_protocol import PROTOCOL_VERSION, errors, limits, paths
from steno_protocol.commands import Hello
from steno_protocol.errors import ErrorCode, Incompatible, Unauthorized
from steno_protocol.messages import decode_answers, encode_request
from steno_protocol.replies import ErrorReply, Welcome


class Ready(msgspec.Struct, frozen=True):
    """The wanted daemon answers; the connection belongs to the caller now."""

    connection: Connection
    welcome: Welcome


class NeedsRestart(msgspec.Struct, frozen=True):
    """A daemon of an older protocol answers; the client can ask it to drain."""

    endpoint: str
    why: str


class Unreachable(msgspec.Struct, frozen=True):
    """No daemon answered in time.

    Attributes:
        endpoint: the address that was tried.
        why: the reason, for an error message.
        is_turned_away: a daemon accepted the connection and closed it, as it does for a moment
            when it has no file descriptor left for one.
        is_silent: the address took the connection, and nothing answered.
    """

    endpoint: str
    why: str
    is_turned_away: bool = False
    is_silent: bool = False


Outcome = Ready | NeedsRestart | Unreachable


def hello_of(target: Target) -> Hello:
    """The greeting of a client."""
    return Hello(protocol=PROTOCOL_VERSION, name=target.name, pid=os.getpid())


def probe(target: Target, deadline: float) -> Outcome:
    """Connect and greet; blocks until `deadline` at the most.

    No pid is checked: only an answer shows that a daemon is there.

    Raises:
        Incompatible: another root's daemon answers, or one with a newer protocol.
        Unauthorized: the daemon refuses this client.
        OutOfHandles, SocketsForbidden: this process cannot make a connection.
    """
    outcome = Attempt(target, deadline).go_on(deadline)
    assert outcome is not None
    return outcome


class Attempt:
    """One attempt to connect and greet, continued until it has an outcome.

    The attempt owns the connection unless the outcome is Ready; a caller that stops before there is
    an outcome closes the attempt.

    Args:
        target: the wanted daemon.
        deadline: when the attempt has failed.
    """

    def __init__(self, target: Target, deadline: float) -> None:
        self._target = target
        self._deadline = deadline
        self._connection: Connection | None = None
        self._has_greeted = False
        self._began = time.monotonic()
        self._is_allowed = False

    def go_on(self, until: float) -> Outcome | None:
        """Block until there is an outcome, at most until `until`; return None if there is none.

        Raises:
            Incompatible, Unauthorized, OutOfHandles, SocketsForbidden: as `probe`; the attempt is
                over.
        """
        if self._connection is None:
            endpoint = self._target.address()
            try:
                key = self._target.key_for(endpoint)
                has_others = bool(self._target.others)
                self._connection = Connection(endpoint, key, has_others=has_others)
            except OutOfHandles:
                raise
            except errors.Unreachable as error:
                return Unreachable(endpoint, error.message)
        try:
            outcome = self._greet(self._connection, min(until, self._deadline))
        except BaseException:
            self.close()
            raise
        if outcome is not None and not isinstance(outcome, Ready):
            self.close()
        return outcome

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()

    def _greet(self, connection: Connection, until: float) -> Outcome | None:
        if not self._has_greeted:
            if not self._is_connected(connection, until):
                return self._unready(connection)
            connection.send(encode_request(b"hello", hello_of(self._target), ()))
            self._has_greeted = True
        return self._await_welcome(connection, until)

    def _is_connected(self, connection: Connection, until: float) -> bool:
        doubtful = until if self._is_allowed else self._began + limits.SOCKET_DOUBT_S
        if connection.wait_until_ready(min(until, doubtful)):
            return True
        if not connection.is_lost() and not self._is_allowed and time.monotonic() >= doubtful:
            self._is_allowed = True
            _check_allowed(connection, connects=False)
        if not connection.is_lost() and connection.wait_until_ready(until):
            return True
        if connection.is_lost():
            _check_allowed(connection, connects=True)
        return False

    def _unready(self, connection: Connection) -> Outcome | None:
        if not connection.is_lost() and time.monotonic() < self._deadline:
            return None
        if connection.is_refused:
            raise _refused(self._target, connection)
        if connection.refusal is not None:
            raise connection.refusal
        # libzmq closes a connection whose handshake takes too long, as one to a stopped process.
        is_late = time.monotonic() - self._began >= limits.HANDSHAKE_MS / 1000
        return Unreachable(
            connection.endpoint,
            _silence(self._target, connection),
            is_turned_away=connection.is_lost() and connection.was_accepted,
            is_silent=connection.was_accepted and (is_late or not connection.is_lost()),
        )

    def _await_welcome(self, connection: Connection, until: float) -> Outcome | None:
        endpoint = connection.endpoint
        while True:
            # The first message may be a liveness check of the daemon, which has no answer.
            for frames in connection.receive(1):
                for answer in decode_answers(frames):
                    return _judge(connection, self._target, answer.body)
            if connection.is_lost():
                return Unreachable(
                    endpoint, f"the daemon at {endpoint} hung up", is_turned_away=True
                )
            now = time.monotonic()
            if now >= self._deadline:
                why = f"the daemon at {endpoint} did not answer in time"
                return Unreachable(endpoint, why, is_silent=True)
            if now >= until:
                return None
            connection.wait(until)


def _check_allowed(connection: Connection, *, connects: bool) -> None:
    if not connection.was_accepted:
        # Imported only now: a client that finds its daemon does not need it.
        from steno._connect.forbidden import check_allowed  # noqa: PLC0415

        check_allowed(connection.endpoint, connects=connects)


def _silence(target: Target, connection: Connection) -> str:
    """The reason why there is no connection: nobody listens, or a program that greets nobody."""
    endpoint = connection.endpoint
    if target.key is not None:
        return f"no daemon answers at {endpoint}, or the key file is for another daemon"
    if connection.has_key:
        return f"no daemon answers at {endpoint}, or its key is not that of {target.lender}"
    if not connection.was_accepted:
        return f"no daemon listens at {endpoint}"
    if connection.is_lost():
        return (
            f"the program that listens at {endpoint} hangs up: it is no stenod, or has no file"
            " handle left for another client"
        )
    return f"the program that listens at {endpoint} did not answer in time"


def _refused(target: Target, connection: Connection) -> Unauthorized:
    shown = "without a key" if target.key is None else f"with the key {target.key.own.public}"
    if target.key is None and connection.has_key:
        shown = f"with the key of {target.lender}"
    return Unauthorized(
        f"the daemon at {connection.endpoint} does not let this client in {shown}:"
        " `steno keys new NAME` on its machine makes a key file, `steno keys list` shows the"
        " admitted clients"
    )


def _judge(connection: Connection, target: Target, body: object) -> Outcome:
    endpoint = connection.endpoint
    match body:
        case Welcome(protocol=protocol) if protocol > PROTOCOL_VERSION:
            raise _client_too_old(endpoint, protocol)
        case Welcome(protocol=protocol) if protocol < PROTOCOL_VERSION:
            return NeedsRestart(endpoint, f"it speaks protocol {protocol}")
        case Welcome(root=root) if target.root is not None and root != target.root:
            raise Incompatible(
                f"the daemon at {endpoint} serves {root}, not {target.root}: give the endpoint of"
                " the right one, or another --socket to one of them"
            )
        case Welcome():
            return Ready(connection, body)
        case ErrorReply(code=ErrorCode.INCOMPATIBLE, protocol=int(protocol)) if (
            protocol > PROTOCOL_VERSION
        ):
            raise _client_too_old(endpoint, protocol)
        case ErrorReply(code=ErrorCode.INCOMPATIBLE):
            return NeedsRestart(endpoint, body.message)
        case ErrorReply(code=ErrorCode.SHUTTING_DOWN):
            return Unreachable(endpoint, f"the daemon at {endpoint} is shutting down")
        case ErrorReply():
            raise body.exception()
        case _:
            raise Incompatible(f"the daemon at {endpoint} answered hello with something else")


def _client_too_old(endpoint: str, protocol: int) -> Incompatible:
    return Incompatible(
        f"this client is too old: it speaks protocol {PROTOCOL_VERSION}, and the daemon at"
        f" {endpoint} speaks {protocol}: update steno in the client's environment"
    )


def probe_deadline(target: Target, deadline: float) -> float:
    """The deadline of one probe."""
    is_remote = target.endpoint is not None and paths.is_remote(target.endpoint)
    timeout_s = limits.REMOTE_PROBE_TIMEOUT_S if is_remote else limits.PROBE_TIMEOUT_S
    return min(deadline, time.monotonic() + timeout_s)


class StartFailed(Futile):
    """No daemon runs and none could be started."""


def not_there(
    target: Target, outcome: NeedsRestart | Unreachable, began: float
) -> errors.StenoError:
    """The error of a client that has waited for its daemon since `began`."""
    if isinstance(outcome, NeedsRestart):
        return errors.Incompatible(
            f"the daemon at {outcome.endpoint} is too old ({outcome.why}): `steno restart`"
        )
    silent = _silent(target, time.monotonic() - began)
    if silent is not None:
        return silent
    return errors.Unreachable(f"no daemon: {outcome.why}; {_remedy(target)}")


def _remedy(target: Target) -> str:
    """How the caller gets a daemon at the expected address."""
    if target.endpoint is not None:
        if paths.is_remote(target.endpoint):
            return "`steno status` on that machine shows whether it runs and listens there"
        return "an address starts none: start the daemon of its root, `steno start --root DIR`"
    assert target.root is not None
    if target.spawn:
        return f"see {Path(target.root, paths.LOG)}"
    return f"start it with `{start_command(target.root)}`"


def _silent(target: Target, waited_s: float) -> errors.Unreachable | None:
    """The error about a silent daemon that holds the wanted root; None if there is none."""
    if target.root is None or target.endpoint is not None:
        return None
    # Imported late: a client that finds its daemon does not need it.
    from steno._connect.lock_holder import holder_of, silence_of  # noqa: PLC0415

    holder = holder_of(Path(target.root))
    if holder is None:
        return None
    silence = silence_of(Path(target.root), holder)
    return errors.Unreachable(
        f"{silence.text}: no answer within {waited_s:.1f} s; {silence.remedy}; `steno doctor`"
        " gives details"
    )
