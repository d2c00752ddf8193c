"""Clauses about several writers at once."""

from steno.testing.stores import limits
from steno.testing.stores.ledger import Item
from steno.testing.stores.trial import Case
from steno.testing.stores.verdicts import Broken


def concurrent_opens(case: Case) -> str:
    """Processes that create one session at the same time and append to it."""
    sessions = 2 * case.rounds
    refused: list[str] = []
    for _ in range(sessions):
        case.begin_session()
        writers = [case.start() for _ in range(limits.WRITERS_MAX)]
        for writer in writers:
            # An answer means that its imports are done, which take longer than an open.
            writer.ask("describe")
        for number, writer in enumerate(writers):
            writer.send("open")
            case.stream(writer, [case.ledger.entry(f"writer{number}")])
        for writer in writers:
            error = writer.reply().error
            refused += [error] if error is not None else case.take(writer)
        case.check()
        case.kill_all()
    if refused:
        raise Broken(
            "opens raised", refused[0], count=len(refused), of=sessions * limits.WRITERS_MAX
        )
    return f"{sessions} sessions, {limits.WRITERS_MAX} processes each"


def concurrent_writers(case: Case) -> str:
    """Processes that append to one session at the same time."""
    writers = [case.open() for _ in range(limits.WRITERS_MAX)]
    count = limits.APPENDS_MAX * case.rounds
    for number, writer in enumerate(writers):
        case.stream(writer, _entries(case, f"writer{number}", count))
    refused = [error for writer in writers for error in case.take(writer)]
    case.check()
    if refused:
        raise Broken("appends raised", refused[0], count=len(refused), of=count * len(writers))
    return f"{len(writers)} processes, {count} appends each"


def _entries(case: Case, writer: str, count: int) -> list[Item]:
    def size(number: int) -> int:
        return limits.LARGE_BYTES if number % 10 == 9 else limits.SMALL_BYTES_MAX

    return [
        case.ledger.entry(writer, case.random.randrange(1, size(number))) for number in range(count)
    ]


def read_your_writes(case: Case) -> str:
    """Two processes that take turns; after each ack both load, and at last a third one."""
    handles = {name: case.open() for name in ("one", "two")}
    turns = 5 * case.rounds
    for _ in range(turns):
        for name, writer in handles.items():
            case.append(writer, case.ledger.entry(name))
            for reader in handles.values():
                case.ledger.check_order(reader.ask("load"))
    case.ledger.check_order(case.load())
    return f"{2 * turns} appends, 2 loads after each"


def conditional_append(case: Case) -> str:
    """Processes that append at the same time on the condition of one head."""
    writers = [case.open() for _ in range(limits.WRITERS_MAX)]
    races = 5 * case.rounds
    for _ in range(races):
        heads = [writer.ask("head") for writer in writers]
        items = [case.ledger.entry(f"writer{number}") for number in range(len(writers))]
        for writer, item, head in zip(writers, items, heads, strict=True):
            writer.send(**item.call(), expect=head)
        replies = [writer.reply() for writer in writers]
        won = [item.id for item, reply in zip(items, replies, strict=True) if reply.error is None]
        case.ledger.ack(*won)
        if len(won) != 1:
            raise Broken("appends won a race for one head", ", ".join(won), count=len(won),
                         of=len(writers))  # fmt: skip
        case.ledger.refused.update(item.id for item in items if item.id not in won)
    case.check()
    return f"{races} races of {len(writers)} processes"
