"""The token of a printed address, which opens the viewer once."""

from collections.abc import Callable

from steno_web.access import is_same, new_secret


class OneTimeToken:
    """The one token that is valid; the next one takes its place when it is used.

    An address stays in the history of a browser, in a terminal and in its log: there it must be of
    no use.

    Args:
        renewed: called with each next token.

    Attributes:
        text: the token.
    """

    def __init__(self, renewed: Callable[[str], object]) -> None:
        self.text: str = new_secret()
        self._renewed = renewed

    def use(self, given: str) -> bool:
        """Use up the token; returns False if the given text is another one."""
        if not is_same(given, self.text):
            return False
        self.text = new_secret()
        self._renewed(self.text)
        return True
