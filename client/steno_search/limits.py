"""The bounds of the search index, each with its unit and its reason."""

from typing import Final

from steno_protocol.limits import MIB

QUERY_CHARS_MAX: Final = 1000
"""A longer query is no query of a person."""

TERMS_MAX: Final = 32
"""Words and phrases of one query; each one costs a pass over its records."""

PREFIX_CHARS_MIN: Final = 3
"""Letters before `*`: two letters begin so many words that to join them takes too long."""

TEXT_CHARS_MAX: Final = 1_000_000
"""Indexed characters of one record: more is the dump of a tool, and nobody reads it."""

BATCH_BYTES: Final = 8 * MIB
"""Text of one transaction: memory is bounded by it, and fewer, larger parts are searched sooner."""

BATCH_RECORDS_MAX: Final = 20_000
"""Records of one transaction, for the same reason."""

PART_CHARS_MAX: Final = MIB
"""Text of one session that is read before it joins a transaction."""

PART_RECORDS_MAX: Final = 5000
"""Records of one session that are read before they join a transaction."""

CACHE_BYTES: Final = 8 * MIB
"""Pages of the index that SQLite keeps in memory."""

BUSY_TIMEOUT_S: Final = 10.0
"""Wait for another process's transaction, which takes less than a second."""

QUERY_TIMEOUT_S: Final = 5.0
"""A query that takes longer is ended; nearly all take a hundredth of it."""

RANKED_MAX: Final = 2000
"""Records that are ordered by relevance; of more, the newest come first."""

COUNTED_MAX: Final = 10_000
"""Found records that are counted; a page says `more than` beyond."""

RESULTS_MAX: Final = 10_000
"""Results of one query that can be paged through."""

PAGE_MAX: Final = 50
"""Results of one page: each is a record that is read from its session."""

SESSIONS_BY_WORD_MAX: Final = 64
"""Sessions of a filter that the index itself looks for; more are filtered afterwards."""

UNUSED_RECORDS_MIN: Final = 20_000
"""The index is made anew when this many of its records, and more than half of them, are gone."""

SETTLED_S: Final = 2.0
"""A session that changed within this time before its listing is read again by the next pass: its
time might not show a further change."""

LOCK_WAIT_S: Final = 10.0
"""A command waits this long for another process that fills the index, then searches without it."""

LOCK_POLL_S: Final = 0.1
"""Between two attempts to get the lock, too short to notice."""

SNIPPET_CHARS_MAX: Final = 240
"""Context of a result: about three lines of a page."""
