"""Objects of one connection, which cannot be copied."""

from typing import NoReturn


class NotPicklable:
    """An object that cannot be copied or pickled.

    A copy would share the subscription behind it, and end it when the copy is collected; in another
    process there is no connection for it.
    """

    def __reduce_ex__(self, protocol: object, /) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be copied or pickled, as it belongs to its client's"
            " connection: open it again where it is needed, in another process with a client of"
            " its own"
        )
