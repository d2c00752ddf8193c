"""The bounds of the web servers, each with its unit and its reason."""

from typing import Final

SHUTDOWN_S: Final = 2
"""Requests get this time to end their streams at Ctrl-C; uvicorn takes whole seconds."""

BACKLOG_MAX: Final = 128
"""Connections that wait to be accepted."""

STRANGERS_MAX: Final = 64
"""Connections at once that have not proven the token: a browser opens six for the page itself."""

STRANGER_S: Final = 15.0
"""Seconds in which a connection has to prove the token: the page is loaded in one over a slow
line."""

TOKEN_CHARS_MIN: Final = 20
"""Characters of a token in a file: 20 random letters and digits are 119 bits."""

TOKEN_CHARS_MAX: Final = 512
"""Characters of a token in a file: it travels in a header of each request."""
