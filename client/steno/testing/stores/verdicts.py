"""The outcomes of a clause."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["kept", "broken", "not offered", "not observed"]


class NotKept(Exception):
    """The end of a clause whose promise was not seen kept.

    Attributes:
        verdict: the outcome.
        summary: what happened, with the number, without ids.
        detail: the ids, or the error.
    """

    verdict: Verdict = "broken"

    def __init__(self, summary: str, detail: str = "") -> None:
        super().__init__(summary, detail)
        self.summary = summary
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.summary}: {self.detail}" if self.detail else self.summary


class Broken(NotKept):
    """The store broke the promise of a clause.

    Args:
        what: what happened, in a few words.
        detail: the ids, or the error.
        count: how many entries, appends or batches are affected; 0 if they cannot be counted.
        of: out of how many.
    """

    def __init__(self, what: str, detail: str = "", *, count: int = 0, of: int = 0) -> None:
        super().__init__(f"{count} of {of} {what}" if of else what, detail)


class NotOffered(NotKept):
    """The driver does not declare the capability that a clause is about."""

    verdict: Verdict = "not offered"


class NotObserved(NotKept):
    """The clause could not look, for the reason given."""

    verdict: Verdict = "not observed"


@dataclass(frozen=True, slots=True)
class Finding:
    """The outcome of one clause.

    Attributes:
        clause: the name of the clause.
        verdict: its outcome.
        summary: what happened, with the number; for a kept clause, what was tried.
        detail: ids or errors.
        seed: the seed that repeats it.
    """

    clause: str
    verdict: Verdict
    summary: str
    detail: str
    seed: int

    def as_json(self) -> dict[str, Any]:
        """The finding as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        outcome = f"{self.verdict}: {self.summary}"
        return f"{outcome}: {self.detail}" if self.detail else outcome
