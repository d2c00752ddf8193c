"""Checkpoints and graphs of LangGraph for tests; a spawned process imports this module."""

from collections.abc import Sequence
from operator import add
from typing import Annotated, Any, TypedDict

TS = "2026-01-01T00:00:00+00:00"


class State(TypedDict):
    """A state whose lists grow."""

    done: Annotated[list[str], add]


def place(thread: str = "talk", ns: str = "", checkpoint: str | None = None) -> dict[str, Any]:
    """A configuration."""
    place = {"thread_id": thread, "checkpoint_ns": ns}
    return {"configurable": place | ({"checkpoint_id": checkpoint} if checkpoint else {})}


def checkpoint(name: str, **values: Any) -> dict[str, Any]:
    """A checkpoint."""
    return {
        "v": 4, "id": name, "ts": TS, "channel_values": values,
        "channel_versions": dict.fromkeys(values, f"{1:032}.5"),
        "versions_seen": {"node": {"a": 1}}, "pending_sends": [], "updated_channels": None,
    }  # fmt: skip


def put(saver: Any, name: str, parent: str | None = None, **values: Any) -> dict[str, Any]:
    """Put a checkpoint of the root namespace."""
    metadata = {"source": "loop", "step": 1}
    config: dict[str, Any] = saver.put(
        place(checkpoint=parent), checkpoint(name, **values), metadata, {}
    )
    return config


def names(saver: Any, config: dict[str, Any] | None = None, **options: Any) -> list[str]:
    """The ids of the checkpoints that a saver lists."""
    found = saver.list(place() if config is None else config, **options)
    return [item.config["configurable"]["checkpoint_id"] for item in found]


def approval_graph(saver: Any) -> Any:
    """A graph that asks a person between two steps, and works in a subgraph."""
    from langgraph.graph import END, START, StateGraph
    from langgraph.types import interrupt

    inner = StateGraph(State)
    inner.add_node("count", lambda state: {"done": [f"inner {len(state['done'])}"]})
    inner.add_edge(START, "count")
    builder = StateGraph(State)
    builder.add_node("draft", lambda _: {"done": ["draft"]})
    builder.add_node("work", inner.compile())
    builder.add_node("ask", lambda _: {"done": [f"answer {interrupt('Send it?')}"]})
    builder.add_node("send", lambda _: {"done": ["send"]})
    for first, second in [(START, "draft"), ("draft", "work"), ("work", "ask"), ("ask", "send")]:
        builder.add_edge(first, second)
    builder.add_edge("send", END)
    return builder.compile(checkpointer=saver)


def delta_graph(saver: Any) -> Any:
    """A graph with a delta channel: most of its checkpoints have only the writes to it."""
    from langgraph.channels.delta import DeltaChannel
    from langgraph.graph import START, StateGraph

    def extended(state: list[str], writes: Sequence[list[str]]) -> list[str]:
        return [*state, *(item for write in writes for item in write)]

    class Deltas(TypedDict):
        items: Annotated[list[str], DeltaChannel(extended, list, snapshot_frequency=4)]

    # The annotation's names are looked up here, not in the module.
    Deltas.__annotations__["items"] = Annotated[
        list[str], DeltaChannel(extended, list, snapshot_frequency=4)
    ]
    builder = StateGraph(Deltas)
    builder.add_node("add", lambda state: {"items": [f"step {len(state['items'])}"]})
    builder.add_edge(START, "add")
    return builder.compile(checkpointer=saver)
