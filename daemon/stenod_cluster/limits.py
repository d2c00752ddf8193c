"""Bounds of replication: messages, waits and pages."""

from typing import Final

from steno_protocol.limits import KIB, MIB

JOURNAL_BODY_BYTES_MAX: Final = 900_000
"""Bytes of a message's body. A server takes 1 MiB with its headers unless it is configured
otherwise; a larger change goes in parts."""

HEADER_BYTES_MAX: Final = 4 * KIB
"""Bytes of a message's headers: five short values, and the address of a daemon."""

SUBJECT_CHARS_MAX: Final = 2000
"""Characters of a subject. A server closes a connection that sends a control line of more than
4 KiB, which has the subject and the address for the answer."""

TRASH_CHARS_MAX: Final = 120
"""Characters of a subject that a deletion adds to a name: the trash, a time and a key."""

KEPT_CHARS_MAX: Final = 20
"""Characters that the name of a session kept beside another one has behind that one's."""

SUBJECTS_KEPT_MAX: Final = 1024
"""Subjects of folders that are kept in memory, as each commit needs that of its folder."""

CONNECT_S: Final = 1.0
"""Time to connect to a server. The next one is tried then; a stopped one accepts nothing."""

RECONNECT_S: Final = 0.1
"""Pause after no server could be reached."""

PING_S: Final = 1.0
"""Time between two pings to the server."""

PINGS_UNANSWERED_MAX: Final = 1
"""Pings without an answer, after which the connection is given up: 2 s at most, which is less than
the time after which other daemons regard a silent one as dead."""

RESEND_S: Final = 1.0
"""Time without an answer after which a message is sent again, under the same id. The
servers replace a lost leader after 4 to 9 s, and forget what was sent to it meanwhile."""

RENEWED_S: Final = 0.02
"""Time by which the wait for the next answer is renewed at least: that costs as much as the rest
of taking an answer, and a long session has tens of thousands."""

CHECK_S: Final = 0.5
"""Time for the answer to a ping after `RESEND_S`; without it another server is chosen."""

RETRY_S: Final = 0.001
"""First pause before a message is sent again whose refusal may pass; each next one is twice as
long. A leader refuses the next message of a subject while it still applies the one before, which
takes about a millisecond."""

RETRY_S_MAX: Final = 0.1
"""Longest pause before a message is sent again; a lost leader is replaced after 4 to 9 s."""

SETUP_RETRY_S: Final = 0.1
"""Pause before the streams are asked for again, while the servers choose a leader."""

SUSPECT_S: Final = 3.0
"""Time for which a stream has to lack what this root knows before that counts: a new leader answers
while it still applies the last messages, and a starting server before it knows its streams."""

REFUSED_POLL_S: Final = 0.5
"""Pause before a starting daemon looks again whether the servers refuse it."""

REFUSED_POLLS_MAX: Final = 3
"""Looks in a row that find it refused before it gives up, long before `READY_S`: a server that is
just starting may refuse the first connection."""

LEADER_CHECK_S: Final = 10.0
"""Time between two looks at which server leads the stream: a publication by way of another one
takes a twelfth longer."""

SETUP_POLL_S: Final = 0.02
"""Pause before a caller looks again whether the streams are there; a daemon starts with it once."""

READ_S: Final = 10.0
"""Time without a new message after which reading fails: a replica that lags catches up earlier."""

READ_BATCH_MESSAGES: Final = 2048
"""Messages of a folder that are requested at a time."""

READ_BATCH_BYTES: Final = 4 * MIB
"""Bytes of messages that are requested at a time. The servers send without flow control, and the
client drops what exceeds 128 MiB."""

PENDING_BYTES_MAX: Final = 64 * MIB
"""Bytes that wait for the connection before publishing waits for them."""

ANNOUNCEMENTS_MAX: Final = 1024
"""Announcements that wait for their turn; more are dropped, as any of them may be lost."""

MONITOR_S: Final = 2.0
"""Time for the answer of a server's monitoring."""

MONITOR_BYTES_MAX: Final = 4 * MIB
"""Bytes of an answer of a server's monitoring; it has about 2 KiB."""

CLOSE_S: Final = 2.0
"""Time to end the connection; a server that does not answer is left."""

JOURNAL_DATA_BYTES_MAX: Final = 850_000
"""Bytes of session files, names and numbers in one message's body."""

ENTRY_BYTES: Final = 320
"""Bytes of an entry without its data at most: a file's name has 255."""

JOURNAL_COPY_BYTES_MIN: Final = 4 * KIB
"""Bytes of a copied range from which on the journal has a reference to it instead of the bytes."""

JOURNAL_MARK_BYTES: Final = 8 * MIB
"""Bytes of messages after which a folder's place in the journal is saved for the next opening."""

MIRROR_HANDLES_MAX: Final = 32
"""Files that are open at a time while a mirror is made."""

APPENDS_TOGETHER_BYTES: Final = 64 * KIB
"""Bytes of appends that a mirror writes together; a larger one is written by itself."""

FOLDERS_OWNED_MAX: Final = 4096
"""Folders whose manifests are kept in memory; more are kept only while they are in use."""

HEARTBEATS_MIN: Final = 5
"""Words of a living daemon within the time after which it counts as dead."""

LOOKS_MIN: Final = 2.5
"""Looks for folders that others took over within `dead_s`: two of them, with their requests."""

RESERVES_MIN: Final = 8
"""Parts of a stream's `max_bytes`, one of which records leave to ownership, deletions and `gc`."""

RESERVE_BYTES_MAX: Final = 1024 * MIB
"""Bytes of that reserve at most: a `gc` publishes a copy of a session before it frees its history,
and a record has 64 MiB."""

MESSAGE_BYTES: Final = KIB
"""Bytes that a stream takes for a message without its body: subject, headers and index."""

GIVE_ATTEMPTS_MAX: Final = 6
"""Times that a daemon gives a session to another one, which has `replication.dead_s` each time: the
messages of a long session take some seconds."""

TAKES_MAX: Final = 8
"""Sessions that a daemon takes over at a time because others give them to it; each has a thread."""

OWN_ATTEMPTS_MAX: Final = 8
"""Attempts to own a folder whose last message changes meanwhile."""

SETTLE_S: Final = 11.0
"""Time that a starting daemon waits for a server whose monitoring does not answer: it may be
starting, and the leader counts a silent one as down after 10 s."""

SETTLE_POLL_S: Final = 0.5
"""Between two questions meanwhile."""

READY_S: Final = 15.0
"""Time that a starting daemon waits for a majority of the servers."""

HOST_CHARS_MAX: Final = 64
"""Characters of a root's identity."""

READ_TOGETHER_MAX: Final = 64
"""Folders whose last messages are asked for at a time."""

ASK_AGAIN_S: Final = 5.0
"""Time for which reads are stale at once after nobody answered: asking takes as long."""

PEER_SILENT_S: Final = 2.0
"""Time without a word of a server, after which the leader of a stream counts without it;
the servers say something about once a second."""

SEEN_AGE_S: Final = 2.0
"""Age from which on a file's time of change shows that it is as it was. File systems stamp changes
with a clock of a few milliseconds, some with one of two seconds."""

MOVED_TOGETHER_MAX: Final = 300
"""Sessions that are renamed, deleted or restored together, with three messages each: the servers
take 1000 messages in one batch."""

JOIN_BYTES: Final = 4 * MIB
"""Bytes of sessions that join together, from which on the others of a request join by themselves:
all of them are in memory several times, which takes no more of it than those that join one by one
side by side."""

UNTIDY_NAMES_MAX: Final = 10_000
"""Names whose copies wait to be put away; a copy beyond that waits until its name is used."""
