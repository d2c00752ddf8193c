"""The bounds of requests to a model: unit in the name, reason beside it.

They concern no daemon; `steno_protocol.limits` bounds its requests.
"""

from typing import Final

from steno_protocol.limits import MIB

MODEL_DEADLINE_S: Final = 300.0
"""A model that summarises a long conversation answers within a minute or two; a longer request,
with all its repeats, fails, and the session stays as it was."""

MODEL_ATTEMPTS_MAX: Final = 5
"""Attempts for one question when the model's server is busy, fails or hangs up."""

MODEL_RETRY_S: Final = 1.0
"""The pause before the second attempt, unless the server names one; doubled for each further."""

MODEL_RETRY_S_MAX: Final = 30.0
"""The longest pause without a wish of the server: rate limits are counted by the minute."""

MODEL_CONNECT_S: Final = 10.0
"""A server that accepts no connection for so long is down."""

MODEL_ANSWER_BYTES_MAX: Final = 4 * MIB
"""Bytes of one answer: a summary of 100 000 tokens has 400 KiB."""

MODEL_OUTPUT_TOKENS_MAX: Final = 8192
"""Tokens that a summary may have unless the caller says otherwise: four times what one needs, so
that a model which thinks first has room."""

MODEL_COMPLAINT_CHARS_MAX: Final = 300
"""Characters of a server's refusal that an error message quotes."""
