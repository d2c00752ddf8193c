"""One blocking call of a model for a summary."""

from typing import TYPE_CHECKING

from steno._sansio.compaction import Begun, lease_ms
from steno._sansio.summaries import BlockingSummarize, Summary
from steno_protocol.context import Message

if TYPE_CHECKING:
    from steno._sync.link import BlockingLink


class ModelCall:
    """A call of `summarize`, during which nothing renews the lease.

    Args:
        summarize: asks the model.
        lease: seconds after which the compaction counts as abandoned.

    Raises:
        BadRequest: the lease is no number.

    Attributes:
        lease_ms: the lease in milliseconds, within its limits.
    """

    def __init__(self, summarize: BlockingSummarize, lease: float) -> None:
        self.lease_ms = lease_ms(lease)
        self._summarize = summarize

    def answer(self, _: "BlockingLink", __: Begun, request: list[Message]) -> str | Summary:
        """Return the answer of the model; the lease is not renewed, as no thread could do so."""
        return self._summarize(request)
