"""Messages and turns as tests append them."""

from steno import BlockingSession


def message(text: str) -> dict[str, str]:
    """A message of the user."""
    return {"role": "user", "content": text}


def live(session: BlockingSession, number: int) -> None:
    """Append one turn, with its events and a checkpoint before it."""
    session.append_wire("TurnBegin", {"user_input": f"turn {number}"})
    session.checkpoint()
    session.append_message({"role": "user", "content": f"turn {number}"})
