"""Bounds of reading transcripts of other programs, each with its unit and its reason."""

from typing import Final

from steno_protocol.limits import MIB, RECORD_BYTES_MAX

TITLE_CHARS: Final = 80
"""Characters of a first prompt that become the title."""

PAST_FACTOR_MAX: Final = 8
"""Records of all past histories together, as a multiple of the transcript's records: each branch is
written whole, and a file of 10 000 short branches would otherwise fill the disk."""

PAST_RECORDS: Final = 10_000
"""Records of all past histories together that any transcript may have: a few megabytes."""

PROMPTS_KEPT_BYTES: Final = 80_000
"""Bytes of the prompts that Codex itself repeats before a summary: 20 000 tokens of four bytes."""

QUEUED_MAX: Final = 1000
"""Prompts that wait at once in a queue of Claude Code; people type a few."""

FOLLOWED_LINE_BYTES: Final = 2 * RECORD_BYTES_MAX + MIB
"""Bytes of a line that is read as a record, and of its texts in memory; a longer one is kept.
Claude Code writes the images of a prompt twice into a line. Letters beyond Latin take two bytes for
each byte of their text while it is decoded, and an emoji lets all of its text take four."""

LONG_LINE_BYTES: Final = MIB
"""Bytes of a line beyond which its length is kept: of the longest ones it saves 33 MB."""

LINE_VALUES_MAX: Final = 4_000_000
"""Values in one line of a transcript; each decoded value takes about 70 bytes of memory."""

RAW_BYTES: Final = 2 * MIB
"""Bytes of one piece of a line that no stream takes as it is: Base64 makes it a third longer."""

DAMAGED_NAMED_MAX: Final = 100
"""Places of damaged lines that are kept to be named; more are counted."""

TAIL_BYTES: Final = 4096
"""The last bytes that were read of a file, which are compared when it has grown: a record that was
cut out of the middle moves all bytes behind it."""

CALL_ID_CHARS_MAX: Final = 64
"""Characters of the id of a call that every service takes; OpenAI refuses more."""

TOOL_NAME_CHARS_MAX: Final = 64
"""Characters of the name of a tool that every service takes."""

FOLLOWED_READER_BYTES: Final = 40_000_000
"""Memory of the reader of a transcript whose conversation is followed, by the bytes that it takes
for each record; the lines of a longer one are still kept. Programs compact a conversation, or begin
another, long before."""

READER_RECORD_BYTES: Final = 650
"""Memory that a reader takes for each record, if it has objects of its own for it ..."""

COMPACT_RECORD_BYTES: Final = 120
"""... and one that has arrays: 330 000 records of a tree are followed."""

LIVE_TAIL_RECORDS: Final = 1000
"""Last records of a tree whose live branch is found anew when records come: a turn has fewer, and
what came before is seldom left for another branch."""

WORDS_KEPT_MAX: Final = 1000
"""Prompts of which the first words are kept: the first one that was not withdrawn is the title."""

FORKS_MAX: Final = 32
"""Forks of forks that are followed to the beginning of a conversation; people make a few."""

ORIGIN_FIRST_RECORDS: Final = 40
"""First records of a transcript in which its session and its directory are looked for: every
program names them early."""

ORIGIN_LAST_RECORDS: Final = 20
"""Last records of a transcript, which name the present branch and model: a turn has a few."""

RECENT_REQUESTS: Final = 16
"""Last requests of a session whose tokens a later record may correct: the parts of an answer stand
together."""

SEEN_REQUESTS_MAX: Final = 400_000
"""Requests of all sessions that are remembered, so that a copy counts nothing twice: 40 MB."""

SPENDING_LINE_BYTES_MAX: Final = 16 * MIB
"""Bytes of a line that is looked at for tokens; a longer one has an image, and seldom an answer."""
