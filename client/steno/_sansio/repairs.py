"""The repairs that daemons reported to a client, and the fields of one that it asks for."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from steno_protocol import limits, paths
from steno_protocol.errors import BadRequest
from steno_protocol.replies import RepairedFile, Verification


class Repairs:
    """The latest repairs of each session, as the replies of this client reported them.

    Args:
        on_repair: called at each reported repair.
    """

    def __init__(self, on_repair: Callable[[RepairedFile], None] | None = None) -> None:
        self._sessions: OrderedDict[str, tuple[RepairedFile, ...]] = OrderedDict()
        self._on_repair = on_repair

    def add(self, repaired: tuple[RepairedFile, ...]) -> None:
        """Keep the repairs that a reply reported; the oldest ones go when there are too many."""
        for each in repaired:
            kept = (*self._sessions.pop(each.session, ()), each)
            self._sessions[each.session] = kept[-limits.REPAIRS_OF_SESSION_MAX :]
            if self._on_repair is not None:
                self._on_repair(each)
        while len(self._sessions) > limits.REPAIRED_SESSIONS_MAX:
            self._sessions.popitem(last=False)

    def of(self, session: str) -> tuple[RepairedFile, ...]:
        """Return the repairs of a session, the oldest first."""
        return self._sessions.get(session, ())


def repair_fields(report: Verification) -> dict[str, Any]:
    """Return the fields by which a repair identifies the verified file.

    Raises:
        BadRequest: the report is not one of a session's context.
    """
    # No type checker may have seen the caller's code.
    given: Any = report
    if not isinstance(given, Verification):
        raise BadRequest(
            f"the report is a {type(given).__name__}: give what verify() of this session returned"
        )
    for file in report.files:
        if file.file == paths.CONTEXT:
            return {"generation": report.generation, "bytes": file.bytes, "crc": file.crc}
    raise BadRequest(
        f"the report has no {paths.CONTEXT}: pass the result of verify() of this session",
        session=report.session,
    )
