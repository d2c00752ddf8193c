"""The outcomes of a clause."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["kept", "broken", "not offered", "not observed"]


class Broken(Exception):
    """The store broke the promise of a clause.

    Attributes:
        count: how many entries, appends or batches are affected; 0 if they cannot be counted.
        of: out of how many.
        what: what happened to them, in a few words.
        detail: the ids, or the error.
    """

    def __init__(self, what: str, detail: str = "", *, count: int = 0, of: int = 0) -> None:
        super().__init__(what, detail)
        self.what = what
        self.detail = detail
        self.count = count
        self.of = of

    @property
    def summary(self) -> str:
        """The number and what happened, without ids."""
        return f"{self.count} of {self.of} {self.what}" if self.of else self.what

    def __str__(self) -> str:
        return f"{self.summary}: {self.detail}" if self.detail else self.summary


class NotOffered(Exception):
    """The driver does not declare the capability that a clause is about."""


class NotObserved(Exception):
    """The clause could not look, for the reason given."""


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
