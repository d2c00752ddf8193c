"""The bounds of the command line, each with its unit and its reason.

`steno_protocol.limits` has the bounds of the protocol.
"""

from typing import Final

from steno_protocol.limits import MIB, RECORD_BYTES_MAX

CHECK_HANDLES_MAX: Final = 16
"""Open files during the check of a folder, which may have any number of files."""

WATCH_RESTART_S: Final = 5.0
"""Pause of systemd before it starts a watch again that ended."""

VERIFY_TIMEOUT_S: Final = 3600.0
"""Timeout for the check of a session, which reads about 100 MiB a second."""

VERIFICATIONS_AHEAD_MAX: Final = 4
"""Sessions whose check was asked for: the daemon checks two at a time, and has the next ones."""

JOINS_AHEAD_MAX: Final = 32
"""Sessions whose joining was asked for: each one waits for the servers several times."""

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

BACKUP_EVERY_S: Final = 60
"""Pause between two rounds of the copy that a service keeps: what a lost disk may take."""
