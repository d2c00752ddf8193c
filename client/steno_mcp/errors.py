"""Errors of steno as the two kinds of errors of MCP."""

from collections.abc import Callable

import mcp_types as types
from mcp.shared.exceptions import MCPError

from steno_present.contract import error_document
from steno_protocol.errors import BadRequest, NotFound, OutcomeUnknown, StenoError
from steno_redact.redactor import Redactor


def protocol_error(
    error: StenoError, uri: str | None = None, shown: Callable[[str], str] = str
) -> MCPError:
    """The error of the protocol for a resource that cannot be read or followed."""
    is_callers = isinstance(error, NotFound | BadRequest)
    code = types.INVALID_PARAMS if is_callers else types.INTERNAL_ERROR
    return MCPError(code, shown(str(error)), None if uri is None else {"uri": uri})


def tool_error(error: StenoError, redactor: Redactor) -> types.CallToolResult:
    """The result of a tool that failed: what happened, and what a model can do about it."""
    document = redactor.fields(error_document(error), frozenset({"key"}))
    lines = [redactor.text(str(error))]
    if isinstance(error, OutcomeUnknown):
        lines.append(f"Repeat the call with the key {error.key}: it is applied once.")
    return types.CallToolResult(
        content=[types.TextContent(text="\n".join(lines))],
        structured_content={"error": document},
        is_error=True,
    )
