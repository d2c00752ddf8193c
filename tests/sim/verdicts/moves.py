"""The promises about renames and restorations, checked from the files alone."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from steno_protocol import commands, paths, timeline_entries

if TYPE_CHECKING:
    from sim.orders import Order
    from sim.verdicts.orders import Tree

MADE = (timeline_entries.CREATED, timeline_entries.ADOPTED, timeline_entries.FORKED)


def moved_ids(files: Mapping[str, bytes], tree: str) -> frozenset[str]:
    """The ids that a session left by a rename, or to which a deleted one was restored.

    Whatever is at such an id now need not have been there all the time.
    """
    found = set[str]()
    for path, data in files.items():
        # The writer of an empty or torn record died before it moved anything.
        if path.startswith(f"{tree}/{paths.MOVES}/") and data.endswith(b"}"):
            move = json.loads(data)
            is_rename = ".rename" in path
            found |= {move["source"], move["target"]} if is_rename else {move["target"]}
    return frozenset(found)


def check_incarnations(tree: "Tree") -> None:
    """No session is there twice."""
    counts = Counter(
        entry.details["incarnation"]
        for folder in tree.folders.values()
        for entry in folder.entries
        if entry.kind in MADE
    )
    twice = [incarnation for incarnation, count in counts.items() if count > 1]
    assert not twice, f"sessions that are there twice: {twice}"


def check_rename(order: "Order", command: commands.Rename, tree: "Tree", *, is_done: bool) -> None:
    """A rename is in the timeline of one session, exactly once, if it was acknowledged."""
    where = [
        path
        for path, folder in tree.folders.items()
        for entry in folder.entries
        if entry.kind == timeline_entries.RENAMED and entry.key == order.key
    ]
    if is_done:
        # A session that was deleted right after the move was gone before it could be recorded.
        name = "~".join(command.new_session.split("/"))
        deleted = [path for path in tree.folders if path.startswith(paths.TRASH)]
        least = 0 if any(f".{name}" in path for path in deleted) else 1
        assert least <= len(where) <= 1, f"{order.key} was acked, and is recorded in {where}"
        return
    assert not where, f"{order.key} was refused ({order.error!r}), and is recorded in {where}"
    if command.new_session == f"moved-{command.new_session.partition('-')[2]}":
        is_there = command.new_session in tree.folders
        assert not is_there, f"{order.key} was refused ({order.error!r}), and took place"
