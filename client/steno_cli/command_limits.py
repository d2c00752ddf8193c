"""The bounds of the command line, each with its unit and its reason.

`steno_protocol.limits` has the bounds of the protocol.
"""

from typing import Final

from steno_protocol.limits import MIB, RECORD_BYTES_MAX

CHECK_HANDLES_MAX: Final = 16
"""Open files during the check of a folder, which may have any number of files."""

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

WATCH_READERS_RECORDS_MAX: Final = 80_000
"""Records of the files whose readers stay in memory, which take about 50 MB: that of one file of
any length, and of many short ones."""

WATCH_RESTART_S: Final = 5.0
"""Pause of systemd before it starts a watch again that ended."""

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

VERIFY_TIMEOUT_S: Final = 3600.0
"""Timeout for the check of a session, which reads about 100 MiB a second."""

VERIFICATIONS_AHEAD_MAX: Final = 4
"""Sessions whose check was asked for: the daemon checks two at a time, and has the next ones."""

CALLS_READ_BYTES_MAX: Final = RECORD_BYTES_MAX
"""Bytes of a session in which calls without a result are found at once, in memory; of a longer one
the daemon's blocks are read."""

REPAIR_BACKUPS_MAX: Final = 16
"""Originals kept beside a repaired file: more mean that something damages it again."""

DEMO_TIMEOUT_S: Final = 60.0
"""Deadline of `steno demo`, which takes about 5 s on two cores."""

TRY_AGENTS_MAX: Final = 32
"""Processes of `steno cluster try`, as of the demo: more of them only wait for two cores."""

TRY_TURNS_MAX: Final = 10_000
"""Turns of each: three servers, two daemons and the processes share one machine."""

TRY_START_S: Final = 60.0
"""Deadline for the servers of `steno cluster try` to choose a leader, about 2 s on two cores."""

TRY_PORTS_MAX: Final = 5
"""Attempts to start its servers, each with new ports: another program may take one first."""

TRY_TIMEOUT_S: Final = 300.0
"""Deadline of its writing, which takes about 10 s on two cores."""

REPLAY_PAUSE_S_MAX: Final = 10.0
"""Longest pause of `steno replay`: no reader waits as long as the session did."""

CALLS_LOOKED_BACK_MAX: Final = 1000
"""Lines at the end of a fork in which calls without a result are looked for: a call and its result
are near each other, and a session may have millions of lines."""

LOG_POLL_S: Final = 0.2
"""Between two reads of `steno logs -f`, too short to notice."""

SESSION_POLL_S: Final = 0.2
"""Between two looks of `steno tail --wait` for its session, too short to notice."""

READER_POLL_S: Final = 1.0
"""Between two checks of a command with -f that stdout still has a reader."""

WATCHDOG_S: Final = 30.0
"""systemd kills a daemon whose event loop stops for this long; a slow disk never stops the loop."""

DOCTOR_SYNCS_MAX: Final = 8
"""Syncs with which `steno doctor` times a disk: one slow sync does not change their median."""

FAILED_LATELY_S: Final = 600.0
"""Age of a failed command up to which `steno doctor` calls its cause a problem that is there."""

FORGOTTEN_S: Final = 3600.0
"""Age of a demo's root from which it is forgotten: a demo takes seconds, and a look minutes."""

FORGOTTEN_LISTED_MAX: Final = 20
"""Forgotten roots that `steno doctor` names."""

DEMO_PREFIX: Final = "steno-demo-"
"""Begins the name of a demo's root in the folder for temporary files."""

TRIAL_PREFIX: Final = "steno-cluster-"
"""Begins the name of the folder of `steno cluster try` there."""

DISK_ALMOST_FULL_BYTES: Final = 1024 * MIB
"""`steno doctor` warns below this free space: agents write as much on a busy day."""

INDEXED_HITS_SHOWN_MAX: Final = 100
"""Matches that `steno grep --index` prints by itself: each one is read from its session."""

INDEXED_HITS_MAX: Final = 10_000
"""Most matches that it prints: the index orders no more."""

TOP_INTERVAL_S: Final = 2.0
"""Between two reports of `steno top`: quick enough for eyes, and the daemon does not notice."""

TOP_INTERVAL_S_MIN: Final = 0.1
"""Shortest interval of `steno top`: in less time few records come, and rates jump."""

TOP_ANSWER_S: Final = 2.0
"""Time for an answer, after which `steno top` shows that the daemon is away."""

TOP_TITLE_S: Final = 60.0
"""Age at which `steno top` asks for a title again, which reads a file; titles change rarely."""

TOP_SESSIONS_MAX: Final = 20
"""Sessions of `steno top --once`; more of them are a list, which `steno sessions` prints."""

MARKDOWN_CHARS_MAX: Final = 40_000
"""A terminal shows a longer text as it is: Markdown takes about 1 ms for each 1 000 characters."""

CODE_CHARS_MAX: Final = 40_000
"""Longer code has no colours on a terminal, for the same reason."""

RECORD_RENDER_S_MAX: Final = 1.0
"""The time after which the further texts of one record are shown as they are: a record may have
any number of them."""

RENDER_S_MAX: Final = 0.5
"""Time for the layout of one text: some lexers take minutes for a few hostile characters."""

WATCH_INTERVAL_S: Final = 5.0
"""Pause between two checks of `steno compact --watch`: an agent's turn takes longer."""

WATCH_COMPACTIONS_MAX: Final = 4
"""Compactions that one worker has under way; more would meet the model's rate limit together."""

WATCH_BACKOFF_S: Final = 30.0
"""A failed compaction is retried after this long, doubled for each further ..."""

WATCH_BACKOFF_S_MAX: Final = 3600.0
"""... failure, but never later than this: the cause may be gone meanwhile."""

SELF_TEST_KILLS_MAX: Final = 5
"""Kills of each kind in `steno doctor --self-test`: enough to meet several steps, in a minute."""

SELF_TEST_WRITERS_MAX: Final = 4
"""Sessions that are written when the daemon of the self-test is killed: one commit has several."""

SELF_TEST_ACKS_MAX: Final = 40
"""Acknowledged appends of each writer before a kill."""

SELF_TEST_REQUEST_S: Final = 1.0
"""Time after which a writer of the self-test counts its daemon as gone."""

SELF_TEST_STEP_S: Final = 20.0
"""Longest wait for one fact of the self-test; a slow disk answers 40 times within it."""

HOOK_INPUT_BYTES_MAX: Final = MIB
"""Bytes of what a hook is given: Claude Code names a file, and Codex adds the last answer."""

HOOK_INPUT_S: Final = 2.0
"""Time for it, after which the hook works with what came: an agent may never close its pipe."""

HOOK_FOLDERS_MAX: Final = 400
"""Folders of days in which the rollout of a thread is looked for, the latest first."""

HOOK_ATTEMPTS_MAX: Final = 20
"""Looks at a file that grows, or beside other imports; the next hook goes on."""

HOOK_RETRY_S: Final = 0.5
"""Pause while another import runs, which takes as long for a session."""

HOOK_SETTLE_S: Final = 1.0
"""Pause after which the file is looked at again: the last lines of a turn may follow its hook."""

BACKUP_EVERY_S: Final = 60
"""Pause between two rounds of the copy that a service keeps: what a lost disk may take."""
