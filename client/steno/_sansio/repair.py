"""The fields of a repair, taken from a verification."""

from typing import Any, TypedDict

from steno_protocol import paths
from steno_protocol.errors import BadRequest
from steno_protocol.replies import Verification


class RepairFields(TypedDict):
    """The fields of a repair that identify the verified file."""

    generation: int
    bytes: int
    crc: int


def repair_fields(report: Verification) -> RepairFields:
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
