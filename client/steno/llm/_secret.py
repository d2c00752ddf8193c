"""A model's key, which is never shown."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from steno_protocol.errors import BadRequest

OWN_VARIABLE: Final = "STENO_LLM_API_KEY"
"""The variable that takes precedence over each provider's own."""

HIDDEN: Final = "[key]"
"""The text in place of a key."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A key that neither its repr nor a traceback with local values shows."""

    _text: str = field(repr=False)

    def header(self, before: str) -> str:
        """The value of the header with the key."""
        return f"{before}{self._text}"

    def hidden_in(self, text: str) -> str:
        """`text` without the key that it may quote."""
        return text.replace(self._text, HIDDEN)

    def hidden_in_bytes(self, data: bytes) -> bytes:
        """`data`, which a server sent, without the key that it may quote."""
        return data.replace(self._text.encode(), HIDDEN.encode())


def secret_of(
    given: str | None, environment: Mapping[str, str], provider_variable: str
) -> Secret | None:
    """Return the key: the given one, else the one in the environment, else None.

    Raises:
        BadRequest: the key cannot be sent as a header.
    """
    for source, text in (
        ("the key that was given", given),
        (OWN_VARIABLE, environment.get(OWN_VARIABLE)),
        (provider_variable, environment.get(provider_variable)),
    ):
        if text is not None and text.strip():
            return Secret(_checked(text.strip(), source))
    return None


def _checked(text: str, source: str) -> str:
    if not text.isascii() or not text.isprintable():
        raise BadRequest(f"{source} is no key: it has characters that no HTTP header can hold")
    return text
