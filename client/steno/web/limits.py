"""The bounds of the web servers, each with its unit and its reason."""

from typing import Final

SHUTDOWN_S: Final = 2
"""Requests get this time to end their streams at Ctrl-C; uvicorn takes whole seconds."""

BACKLOG_MAX: Final = 128
"""Connections that wait to be accepted."""

TOKEN_CHARS_MIN: Final = 20
"""Characters of a token in a file: 20 random letters and digits are 119 bits."""

TOKEN_CHARS_MAX: Final = 512
"""Characters of a token in a file: it travels in a header of each request."""
