"""A key: it comes from the environment, and is shown nowhere."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from steno_protocol.errors import BadRequest

OWN_VARIABLE: Final = "STENO_LLM_API_KEY"
"""The variable that goes before each provider's own, for whatever server is asked."""

HIDDEN: Final = "[key]"
"""What stands where a key would have been shown."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A key that neither its repr nor a traceback with local values shows."""

    _text: str = field(repr=False)

    def header(self, before: str) -> str:
        """The value of the header that bears the key."""
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
    """The key to ask with: the given one, else that of the environment, else none.

    Raises:
        BadRequest: it cannot be sent as a header.
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
