"""The clauses of the suite, in the order of its tables."""

from typing import Final

from steno.testing.stores import accidents, durability, rewrites, writers
from steno.testing.stores.trial import Clause

CLAUSES: Final = (
    Clause(
        "concurrent opens",
        "Processes that create a session at the same time can all open it and append.",
        writers.concurrent_opens,
    ),
    Clause(
        "concurrent writers",
        "Processes that append at the same time lose, double and mix nothing.",
        writers.concurrent_writers,
    ),
    Clause(
        "read your writes",
        "After an ack every process loads the entry, in the order of the acks.",
        writers.read_your_writes,
    ),
    Clause(
        "killed writer",
        "A writer killed at any point costs no acknowledged entry, and the next append survives.",
        accidents.killed_writer,
    ),
    Clause(
        "torn tail",
        "A file with a torn tail opens with every whole entry, and the next append survives.",
        accidents.torn_tail,
    ),
    Clause(
        "full disk",
        "A full disk is reported; no acknowledged entry is lost, and appends resume.",
        accidents.full_disk,
    ),
    Clause(
        "stale writer",
        "An append beside a clear or revert raises, or its entry is in its place.",
        rewrites.stale_writer,
        frozenset({"clear", "revert"}),
    ),
    Clause(
        "retry after a lost answer",
        "An append that is repeated with its key is stored once.",
        rewrites.retry_after_lost_answer,
        frozenset({"keys"}),
    ),
    Clause(
        "whole batches",
        "A batch is stored and visible as a whole or not at all.",
        rewrites.whole_batches,
        frozenset({"batches"}),
    ),
    Clause(
        "conditional append",
        "Of the appends on the condition of one head, one is stored.",
        writers.conditional_append,
        frozenset({"expect"}),
    ),
    Clause(
        "synced before the ack",
        "An acknowledged entry is on the disk: its file was synced before the ack.",
        durability.synced_before_ack,
    ),
)
