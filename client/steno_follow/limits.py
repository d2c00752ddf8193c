"""Bounds of finding, reading and following what other programs write, with unit and reason."""

from typing import Final

from steno_protocol.limits import MIB, RECORD_BYTES_MAX

DETECTED_LINES_MAX: Final = 10_000
"""Lines that are read to find out which program wrote a file. Claude Code writes a snapshot of the
edited files for each prompt, hundreds of them before the first message of a resumed session."""

TRANSCRIPT_LINE_BYTES_MAX: Final = 4 * RECORD_BYTES_MAX
"""Bytes of one line of a transcript, which is kept in memory. Claude Code writes the images of a
prompt twice into a line, which is then longer than any record."""

FOLLOW_UPDATE_FACTOR_MAX: Final = 1.1
"""Growth of a long file's records after which its context follows before the file's end."""

FOLLOW_PAST_MAX: Final = 8
"""Past histories that a context which is to be replaced is compared with: a session has one or two
compactions while no watch runs."""

FOLLOW_ATTEMPTS_MAX: Final = 8
"""Looks at one file while others write its session: each time one of them has made progress."""

FOLLOW_BATCH_BYTES: Final = 2 * MIB
"""Bytes of one append to a followed session; a request, its copy and its lines are in memory."""

FOLLOW_BATCH_RECORDS_MAX: Final = 1000
"""Records of one append to a followed session."""

WATCH_RESCAN_S: Final = 2.0
"""Between two looks of `steno watch` at the files, soon enough for a person who waits."""

WATCH_LOOK_BYTES: Final = 8 * MIB
"""Bytes of one file that a watch takes in before it looks at the others: below a second of work."""

WATCH_PROGRESS_S: Final = 5.0
"""Between two lines about a long file that is taken in bit by bit: 2 GB are 250 bits, of which most
add nothing to the context yet."""

WATCH_STATS_MAX: Final = 2000
"""Files that are looked at each time, about 7 ms: up to a half of them those that changed lately,
and the others take turns. 10 000 idle files need half a per cent of a core."""

WATCH_FOLDERS_MAX: Final = 1000
"""Folders that are looked at each time for new files; more of them take turns."""

NOTES_BYTES: Final = 64 * 1024
"""Notes of the kernel that are read at once; it keeps 16 384 of them."""

NOTES_GATHERED_S: Final = 0.05
"""Pause between a note of the kernel and the look that follows: a file that grows all the time is
looked at 20 times a second at most."""

WATCH_LATELY_S: Final = 900.0
"""Age of the last change up to which a file is looked at each time."""

WATCH_SETTLED_S: Final = 3.0
"""Silence of a file after which the last answer in it counts as complete. Claude Code writes the
parts of an answer one by one, and an early one would have to be replaced."""

WATCH_WORK_S: Final = 1.0
"""Time for the files that wait, after which the others are looked at again."""

WATCH_READERS_MAX: Final = 16
"""Files whose reader stays in memory; another one that grows is read from its beginning."""

WATCH_READERS_BYTES_MAX: Final = 50_000_000
"""Memory of the readers that stay in memory: that of one file of any length, and of many short
ones."""

WATCH_BACKOFF_MIN_S: Final = 10.0
"""Pause before a file that could not be followed is tried again, doubled each time ..."""

WATCH_BACKOFF_MAX_S: Final = 600.0
"""... up to this: it may be readable again, or have another form."""

DETECTED_LINE_BYTES_MAX: Final = 2 * RECORD_BYTES_MAX + MIB
"""Bytes of one of the lines that show the program; a longer one is passed over, and no follower
reads it as a record (`steno_agents.limits.FOLLOWED_LINE_BYTES`)."""

DETECTED_BYTES_MAX: Final = 1024 * MIB
"""Bytes that are read to find out which program wrote a file. Node.js writes no text of more than
512 MiB, so that the longest line can be passed over; a larger file without lines is not read to its
end."""

DECOMPRESSED_BYTES_MAX: Final = 16 * 1024 * MIB
"""Bytes of a compressed transcript once it is decompressed: a few kilobytes can become any size,
and the copy lies on the disk of the sessions."""

IMPORT_DEPTH_MAX: Final = 32
"""Levels of folders below the folder of an import; Claude Code has seven below its projects."""

TITLE_FILE_BYTES_MAX: Final = MIB
"""Bytes of a file that describes one session of a program; such a file has a few kilobytes."""

INDEX_BYTES_MAX: Final = 64 * MIB
"""Bytes of a program's index of names, which are read as a whole: 300 000 lines."""

HOOK_FOLDERS_MAX: Final = 400
"""Folders of days in which the rollout of a thread is looked for, the latest first."""

HOOK_ATTEMPTS_MAX: Final = 20
"""Looks at a file that grows, or beside other imports; the next hook goes on."""

HOOK_RETRY_S: Final = 0.5
"""Pause while another import runs, which takes as long for a session."""

HOOK_SETTLE_S: Final = 1.0
"""Pause after which the file is looked at again: the last lines of a turn may follow its hook."""

HOOK_INPUT_BYTES_MAX: Final = MIB
"""Bytes of what a hook is given: Claude Code names a file, and Codex adds the last answer."""

HOOK_INPUT_S: Final = 2.0
"""Time for it, after which the hook works with what came: an agent may never close its pipe."""
