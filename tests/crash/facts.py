"""What an agent reports of each command: one line of JSON."""

import msgspec


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent does until it is ended.

    Attributes:
        agent: its number, from 0.
        seed: of its choices.
        endpoints: the daemons of the cluster.
        sessions: it uses these in turn by chance.
        pause_s: seconds between two commands.
    """

    agent: int
    seed: int
    endpoints: tuple[str, ...]
    sessions: tuple[str, ...]
    pause_s: float


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one command.

    Attributes:
        at_s: when, on the machine's monotonic clock.
        agent: the agent.
        number: of the command among the agent's.
        kind: `append`, `batch`, `large`, `wire`, `stream`, `checkpoint` or `revert`.
        session: where.
        file: `context.jsonl`, `wire.jsonl`, `stream-notes.jsonl`.
        outcome: `ack`; `absent`, if no attempt can have been applied; `unknown`, if the agent had
            to end before it knew.
        records: how many.
        first: the position of the first record, as generation and line.
        checkpoint: its id, or that of the checkpoint that a revert goes back to.
        attempts: how often it was sent.
        is_duplicate: an earlier attempt had been applied.
        endpoint: the daemon that answered.
        errors: the errors of the attempts, without repeats.
    """

    at_s: float
    agent: int
    number: int
    kind: str
    session: str
    file: str
    outcome: str
    records: int = 1
    first: tuple[int, int] = (0, 0)
    checkpoint: int | None = None
    attempts: int = 1
    is_duplicate: bool = False
    endpoint: str = ""
    errors: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The text in each record of the command; a record's number follows it."""
        return record_name(self.agent, self.number)


def record_name(agent: int, number: int) -> str:
    """Returns the text in each record of a command; a record's number follows it.

    >>> record_name(3, 17)
    '3:17:'
    """
    return f"{agent}:{number}:"
