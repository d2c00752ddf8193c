"""Every bound of protocol, daemon and client: its unit in the name, its reason beside it.

Bounds that neither the protocol nor the daemon knows are the client's: of asking a model in
`steno.llm_limits`, of the command line in `steno.cli.command_limits`.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# --- what one client may say -------------------------------------------------------------------

RECORD_BYTES_MAX: Final = 16 * MIB
"""One record. A 10 MiB image grows to 13.4 MiB as base64; the largest that agents send."""

RECORD_DEPTH_MAX: Final = 100
"""Nesting of one record. Python 3.11's json reader dies 997 deep; readers must never come near."""

BATCH_RECORDS_MAX: Final = 4096
"""Records of one atomic batch."""

BATCH_BYTES_MAX: Final = 64 * MIB
"""Bytes of one atomic batch: it is written with one call and kept in memory until it is synced."""

TOGETHER_BYTES_MAX: Final = 1 * MIB
"""Records that are looked at together: decoded they take up to thirty times as much memory. A
larger request travels in a message of its own."""

FRAME_BYTES_MAX: Final = BATCH_BYTES_MAX + MIB
"""One frame; a batch that is a little too large is still refused by name."""

MESSAGE_REQUESTS_MAX: Final = 256
"""Requests in one message: as many as are taken in before the writers get their turn."""

HEADER_BYTES_MAX: Final = 1 * MIB
"""The command of a request as JSON; its largest field is a system prompt."""

MESSAGE_HEADER_BYTES_MAX: Final = 2 * HEADER_BYTES_MAX
"""The header frame of a message, with all its requests; a longer one is not read."""

MESSAGE_REFUSALS_MAX: Final = 1024
"""Requests of a too large message that get an error each, in 10 ms; 95 000 would take a second."""

REQUEST_ID_BYTES_MAX: Final = 64
"""The request id frame, which the daemon echoes and does not read."""

KEY_CHARS_MAX: Final = 64
"""An idempotency key; a uuid7 has 36."""

NAME_CHARS_MAX: Final = 64
"""A client's name, the `_by` of the lines that it writes."""

SESSION_ID_CHARS_MAX: Final = 255
"""A session id, slashes and mount included; Linux allows 255 bytes a path segment."""

SESSION_SEGMENT_CHARS_MAX: Final = 128
"""One segment of a session id."""

WHY_CHARS_MAX: Final = 1000
"""A reason: a few sentences, since the timeline is read as a whole."""

TITLE_CHARS_MAX: Final = 200
"""A session's title: one line of a terminal, or two."""

LABELS_MAX: Final = 64
"""Labels of one session; `list` reads them for every session."""

PRESERVED_MESSAGES_MAX: Final = 10_000
"""Messages that a compaction is asked to leave as they are; the default is 2."""

DMAIL_CHARS_MAX: Final = 100_000
"""A D-Mail: it is kept in the timeline, and travels in a header."""

COMPACTION_LEASE_MS: Final = 60_000
"""A compactor that says nothing for so long has gone; a living one renews at a third of it."""

COMPACTION_SILENT_LEASE_MS: Final = 600_000
"""The lease of a compactor that cannot renew it: a model's answer takes minutes at the most."""

COMPACTION_LEASE_MS_MAX: Final = 3_600_000
"""The longest lease: for a compactor that cannot renew while its model thinks."""

COMPACTION_LOOKS_MAX: Final = 8
"""Attempts to find a cut beside concurrent rewrites before the compactor is asked to retry."""

COUNT_MAX: Final = 2**53
"""A number of tokens, bytes or checkpoints: exact in every language that has JSON."""

CRC_MAX: Final = 2**32 - 1
"""The largest CRC-32: it has 32 bits."""

SUBSCRIPTIONS_PER_PEER_MAX: Final = 256
"""Subscriptions of one connection; each costs the daemon about 1 KiB and one feed entry."""

SUBSCRIPTION_WINDOW_BYTES_MAX: Final = 16 * MIB
"""Bytes that may be under way to one subscriber before it must grant more."""

SUBSCRIPTION_WINDOW_BYTES: Final = 4 * MIB
"""The window that a client asks for: four blocks, so that one is read while the next travels."""

CLIENT_REQUESTS_MAX: Final = 65_536
"""Requests that one client keeps under way; each belongs to a waiting caller."""

CLIENT_LOOKUPS_MAX: Final = 64
"""Of them those for which the daemon looks at files; it reads 16 at a time of all clients together,
and sixteen clients that ask for as much have just their places in `READERS_MAX`."""

HANDSHAKE_MS: Final = 10_000
"""A handshake; over TCP it is three ways there and back, which take a satellite and a lossy network
seconds. A peer that never ends its handshake holds a handle for this long."""

HEARTBEAT_MS: Final = 10_000
"""Time between two heartbeats over TCP, where a dead machine closes no connection."""

HEARTBEAT_TIMEOUT_MS: Final = 3 * HEARTBEAT_MS
"""Silence over TCP after which a client gives up its connection; only whole frames are noticed."""

CLIENT_SILENCE_MS: Final = 12 * HEARTBEAT_MS
"""Silence over TCP after which the daemon gives up a connection: the largest batch is one frame,
and arrives in time at 4.5 Mbit/s."""

ANSWER_SOON_MS: Final = 20
"""So long a blocking client waits for an answer alone, before it watches the connection, too."""

CLIENT_TURN_MESSAGES: Final = 256
"""Messages that a client takes in before the tasks beside it get a turn: about 10 ms of blocks."""

CLIENT_TURNS_MAX: Final = 16
"""Turns in which a blocking client takes in what has arrived before it sends a change: a window of
events fits into them, and a busy session does not delay the client's requests."""

REFRESH_S_MAX: Final = 1.0
"""A refresh ends after this long where others write without a pause; a window takes a fifth."""

EVENT_COST_BYTES: Final = 1 * KIB
"""What a records event costs beside its block: the window ends before small ones fill the queue."""

FANOUT_MAX: Final = 16
"""Followers that receive a commit before the next command is handled: about 0.2 ms."""

FANOUT_EVENT_S: Final = 0.0005
"""What one of more followers adds to the pause between two commits' events: sending and taking an
event in costs both ends about 0.06 ms together, and the writer keeps nine tenths of its time."""

FANOUT_PAUSE_S_MAX: Final = 0.25
"""The longest such pause; a watching person must not notice it."""

RESETS_MAX: Final = 4096
"""Rewrites of an open file that followers find without reading the timeline, 0.2 KiB each."""

RESETS_READ_MAX: Final = 256
"""Rewrites kept from one read of the timeline: sixteen distant followers do not evict each
other's."""

SUBSCRIBER_STALL_S: Final = 60.0
"""A subscriber without credit for this long gets `lagged` and is removed."""

# --- what the daemon holds ---------------------------------------------------------------------

MAILBOX_COMMANDS_MAX: Final = 4096
"""Commands that wait for one writer: 64 clients with 64 in flight each; the next is `busy`."""

MAILBOX_BYTES_MAX: Final = 128 * MIB
"""Bytes that wait for one writer: two of the largest batches."""

INFLIGHT_BYTES_MAX: Final = 512 * MIB
"""Bytes that wait for all writers together."""

READERS_MAX: Final = 1024
"""Requests that are being read for at a time; the next is `busy`. They do not wait in a longer
queue: a client that waits for long retries, and the reply to its first request would be lost."""

PEER_READERS_MAX: Final = 256
"""As many of them may be one connection's, so that it cannot take the places of all others."""

ANSWERS_TOGETHER_MAX: Final = 512
"""Replies that travel in one message; about 64 KiB of JSON."""

BURST_REQUESTS_MAX: Final = 256
"""Requests that are taken in before the writers get their turn."""

HASTY_COMMANDS_MAX: Final = 16
"""Commands of a burst for which a session is served first: to decide on 16 takes a fast sync."""

GROUP_COMMANDS_MAX: Final = 512
"""Commands of one group commit; between two groups the other writers have their turn, so a flood on
one file delays an ack on another by one group, about 15 ms."""

GROUP_BYTES_MAX: Final = 64 * MIB
"""Bytes that one group commit writes: bounds the time of one sync and of one failure."""

KEYS_MAX: Final = 4096
"""Keys that an open file's writer remembers, 262 bytes each: 64 clients' with 64 in flight each."""

KEYS_OPEN_MAX: Final = 64 * KEYS_MAX
"""Keys that the writers of all open files remember together: about 64 MiB."""

KEYS_PIECE_MAX: Final = 256
"""Keys that each open file has room for in any case: with 512 sessions of two files that is all."""

KEYS_KEPT_MAX: Final = 16 * KEYS_MAX
"""Keys of sessions without stamps that outlive the closing of their files, about 16 MiB."""

KEY_FILTER_KEY_BITS: Final = 32
"""With six hashes one false alarm in 40 000 keys: each costs a look through the session's files."""

KEY_FILTER_BITS_MIN: Final = 1 << 17
"""Smallest key filter, 16 KiB, for 4 096 keys; it grows with them."""

KEY_FILTER_BITS_MAX: Final = 1 << 26
"""Largest key filter, 8 MiB, for two million keys; with more the false alarms become more."""

KEY_FILTERS_BYTES_MAX: Final = 256 * MIB
"""What the key filters of all open files take together: those of 512 sessions of 30 000 lines."""

BLOCK_BYTES: Final = 1 * MIB
"""Bytes of whole lines in one block of a read or of a backlog."""

FREED_BYTES_MAX: Final = 8 * MIB
"""Free memory that each heap of the daemon keeps: with less, every block is asked for anew."""

MAPPED_BLOCK_BYTES: Final = 4 * MIB
"""Larger blocks than those of a usual read are mapped each for itself, and gone once freed."""

OPEN_SESSIONS_MAX: Final = 512
"""Sessions with open files at a time; the least recently used is closed."""

HANDLES_PER_SESSION_MAX: Final = 4
"""Handles of an open session: its folder and its file, for the context and for the wire file."""

HANDLES_PER_CONNECTION_MAX: Final = 12
"""Handles for a client's first connection: libzmq, without them midway, ends the
process."""

HANDLES_MIN: Final = 48
"""File handles without which no daemon starts: 21 at rest with TCP, 12 to connect, 4 a session."""

HANDLES_RESERVE_MAX: Final = 256
"""File handles that are kept free at most (else an eighth), for reads, rewrites, and the clients
that libzmq takes in before the loop has looked: 10 000 a second came when it was tried."""

HANDLES_LOOK_S: Final = 0.01
"""No free handle is looked for so soon after there was none: to count 20 000 takes as long."""

RETIRED_TOGETHER_MAX: Final = 8
"""Closed beside the one whose place is wanted: to find them costs more than 1 ms each to close."""

SESSION_IDLE_S: Final = 60.0
"""An unused session is closed after this long, and then costs no memory."""

LIST_SESSIONS_MAX: Final = 10_000
"""Sessions of one `list` reply; `after` continues."""

SESSION_TREE_DEPTH_MAX: Final = 8
"""Folders that `list` descends below `sessions/` or a mount."""

LENT_FRAME_BYTES: Final = 64 * KIB
"""A frame of so many bytes is lent to the socket until it is sent; copying a smaller costs less."""

PEER_LOANS_BYTES_MAX: Final = 32 * MIB
"""Bytes that one connection may leave untaken before what could add many is `busy`."""

UNTAKEN_BYTES_MAX: Final = 48 * MIB
"""Bytes that all connections leave untaken together before each may leave an equal part at most,
and before a block is no larger than `CROWDED_BLOCK_BYTES`: without it forty that took nothing had
1.5 GiB."""

CROWDED_BLOCK_BYTES: Final = 256 * KIB
"""Bytes of a block that is read while `UNTAKEN_BYTES_MAX` bytes lie untaken."""

FORGET_S: Final = 1.0
"""How long after its end a connection is forgotten and the memory that it took is given back."""

PEER_EVENTS_BYTES_MAX: Final = 8 * MIB
"""Bytes that one connection may leave untaken before its subscriptions wait: two windows."""

PEER_PROOF_BYTES: Final = 1 * MIB
"""Bytes that go to a connection by copy until a frame is lent; the release of that frame shows that
all were sent."""

PEER_LOOK_S: Final = 0.02
"""Interval between checks of a stalled connection: no system call reports that a peer read."""

READ_AHEAD_BYTES_MAX: Final = 2 * MIB
"""Bytes that a client asks for at a time when it reads for long. With 1 MiB each, the way there and
back takes longer than the bytes; 8 MiB are no quicker, and a hundred readers would fill a GiB."""

FILE_BLOCK_BYTES: Final = 256 * KIB
"""Bytes that a blocking client takes at a time from a session's file: what fits the processor's
caches is split into lines in two thirds of the time that 1 MiB takes."""

PEER_BLOCKS_READ_MAX: Final = 4
"""Blocks that are read at a time for one connection; its other reads wait for their turn."""

SEND_QUEUE_MESSAGES: Final = 4096
"""Messages that wait for one peer; one that reads no replies loses the next ones."""

PEERS_MAX: Final = 10_000
"""Connections that the daemon remembers; the oldest is forgotten first."""

PEERS_LOOK_S: Final = 0.1
"""Interval between checks for gone clients: one check of 10 000 takes 6 ms."""

# --- the disk ----------------------------------------------------------------------------------

QUARANTINE_FILES_MAX: Final = 8
"""Distinct damages kept for one session; a repeated repair must not fill the disk."""

TORN_TAIL_BYTES_MAX: Final = 2 * BATCH_BYTES_MAX
"""How far from the end a torn batch can begin; recovery looks no further for one."""

MARK_BYTES: Final = 4 * MIB
"""After so many appended bytes, or twice as many, a mark is renewed: the next open takes 10 ms."""

UNPROVEN_BYTES_MAX: Final = 2 * MARK_BYTES + GROUP_BYTES_MAX
"""Bytes at the end of a session without a mark that no sync may ever have reached: a mark is
written at least so often. They are written again when it is opened."""

MILESTONES_MAX: Final = 256
"""Places of a session's file whose numbers are remembered, 100 bytes each and at least a block
apart: a revert reads from the last of them that can be before its checkpoint."""

CHECKSUM_BLOCK_BYTES: Final = 1 * MIB
"""Bytes of a file under one checksum. A rewrite reads at most one block of the part that it keeps
(0.3 ms), and the mark of a session of 1 GiB grows by 11 kB."""

STAMP_BYTES_MAX: Final = 128
"""The end of a line in which its stamp lies: a key of 64 characters, two numbers, their quotes, the
brace and the line's end are 85."""

FINGERPRINT_BYTES: Final = 64 * KIB
"""Bytes before an offset whose CRC says that a file is still the one that was marked."""

FOREIGN_SETTLE_S: Final = 2.0
"""A half line in a folder that others write too is theirs until it has stood still this long."""

FOLLOWED_LOOK_S: Final = 5.0
"""Interval between polls of a followed mount; each foreign change becomes a timeline entry."""

MEND_LOOKS_MAX: Final = 8
"""Attempts to repair a torn tail that grows meanwhile, before the opening gives up."""

COPY_BYTES: Final = 8 * MIB
"""Bytes that one copy step moves, so that a long rewrite can be counted and stopped."""

READ_THREADS_MAX: Final = 16
"""Reads, copies and recoveries at a time; more would only wait for the disk, or for each other."""

SWITCH_S: Final = 0.0005
"""How long a thread that decodes may hold the interpreter while the loop waits; Python's own 5 ms
would be added to every ack beside it."""

GC_OBJECTS_MAX: Final = 20_000
"""New objects between two looks for cycles; at Python's own 700 they cost 5 % of the time."""

WRITTEN_SYNC_S: Final = 1.0
"""Bytes that were acknowledged as `written` are synced no later than this."""

LIVE_SYNC_S: Final = 0.05
"""... and no later than this while the file has followers: a person sees no delay."""

UNSYNCED_BYTES_MAX: Final = 8 * MIB
"""... nor later than the group behind this many of them: they are kept in memory until then, and a
sync of all that a flood writes in a second would delay every command behind it."""

SLOW_SYNC_S: Final = 0.5
"""A sync slower than this is reported in the log with what it took."""

LOG_BYTES_MAX: Final = 8 * MIB
"""Bytes of `stenod.log` before it is rotated to `stenod.log.1`, if the options say nothing else."""

LOG_BYTES_LEAST_MAX: Final = 64 * KIB
"""A log may be no shorter than this, or one burst of trouble would push its own beginning out."""

LOG_FILES_MAX: Final = 3
"""Rotated logs that are kept, unless the configuration differs: 32 MiB of history in all."""

CONFIG_BYTES_MAX: Final = 256 * KIB
"""`config.toml`; the example with every option has 2 KiB."""

FREE_BYTES: Final = 16 * MIB
"""Room for what must not fail: timelines, quarantine, the log; the largest record fits into it."""

# --- checking files ----------------------------------------------------------------------------

LINE_CHECKED_BYTES_MAX: Final = 64 * MIB
"""A longer line of a foreign file is counted, not looked into: a check keeps a line in memory."""

WELD_TOKENS_MAX: Final = 1_000_000
"""Tokens of a broken line read for nothing, seconds of it, before the rest counts as damage."""

WELD_DEPTH_MAX: Final = 1000
"""Nesting up to which a broken line is looked into; readers die there, too."""

TIME_FALL_S: Final = 1.0
"""Seconds by which the timestamp of an event may fall unreported: two clients write at a time."""

CHECKED_KEYS_MAX: Final = 262_144
"""Commands of one file among which a check sees one that is there twice; about 25 MiB."""

VERIFY_LOOKS_MAX: Final = 4
"""Attempts to check a session whose writer was faster each time, before one is believed."""

VERIFICATIONS_MAX: Final = 2
"""Sessions that are verified at a time: each reads all files of one, and writers are to go on."""

FINDINGS_TOLD_MAX: Final = 1000
"""Findings of one session or file that are listed; the others are counted by kind."""

REPAIR_EDITS_MAX: Final = 250_000
"""Places of one file that one repair changes, 120 bytes each; a file with more is no transcript."""

STATE_BYTES_MAX: Final = 1 * MIB
"""A session's `state.json`; kimi-cli keeps its tasks there, a few KiB."""

DAMAGED_STATES_MAX: Final = 100
"""Damaged `state.json` kept beside a session's present one; so many are a program gone wrong."""

DAY_S: Final = 86_400.0
"""A day has so many seconds: trash and old generations are counted in days."""

TRASH_EXPIRY_S: Final = 30 * DAY_S
"""What was deleted can be brought back by hand for so long: a month, as desktops keep it."""

TRASH_SWEEP_S: Final = DAY_S
"""How often expired trash is looked for, and at every start: it is kept for a month anyway."""

TRASH_SWEEP_ENTRIES_MAX: Final = 256
"""Expired sessions that one sweep of a tree removes; the next round goes on with the others."""

FOLDER_DEPTH_MAX: Final = 64
"""Folders in each other that a removal descends; each costs it a file handle."""

# --- waiting -----------------------------------------------------------------------------------

REQUEST_TIMEOUT_S: Final = 30.0
"""How long a client works at one request, resends included, unless it says otherwise."""

REQUEST_TIMEOUT_S_MAX: Final = 1e6
"""The longest timeout of one request; eleven days are practically for ever."""

RESEND_S: Final = 2.0
"""A request without an answer is sent again after this long, then after twice as long, ..."""

RESEND_S_MAX: Final = 8.0
"""... but never later than this."""

BUSY_RETRY_S: Final = 0.02
"""A request answered `busy` is sent again after this long, doubled up to `RESEND_S`."""

SLOW_BYTES_S: Final = 125_000
"""Bytes a second of the slowest connection that is reckoned with, 1 Mbit/s: what takes longer than
`RESEND_S` on it is sent again that much later, because copies would be in the way of answers."""

RECONNECT_S: Final = 0.05
"""A client that cannot connect tries again after this long, doubled up to `RECONNECT_S_MAX`."""

RECONNECT_S_MAX: Final = 1.0
"""How late a follower may notice that there is a daemon again."""

START_LOCK_POLL_S: Final = 0.02
"""Clients that wait for the one that starts the daemon look this often whether it is there."""

START_LOCK_POLLS_MAX: Final = 10
"""... and later less often: so often in the time that they have waited already. Three hundred of
them would else take the processors that the daemon needs to start."""

START_LOCK_S: Final = 5.0
"""Seconds that a client waits for another one that starts a daemon, or half of its own time if that
is less. Then one more client starts one, because the first may be stopped or hung: a start takes
0.4 s."""

SPAWN_TIMEOUT_S: Final = 15.0
"""A daemon that is not ready this long after its start did not start."""

STARTS_MAX: Final = 3
"""One killed start does not predict that the next one fails; three in a row do."""

VERSION_1_S: Final = 0.5
"""How long a daemon may leave a greeting unanswered before it is greeted in protocol version 1."""

PROBE_TIMEOUT_S: Final = 2.0
"""A daemon that does not answer `hello` for so long is unreachable."""

REMOTE_PROBE_TIMEOUT_S: Final = 10.0
"""... and one on another machine after this long: to connect, shake hands and greet takes five ways
there and back, and a lost packet a second or three."""

CONNECT_SLICE_S: Final = 0.05
"""So long a blocking client goes on with an attempt to connect before it looks at its clock."""

COMPACTION_ABORT_S: Final = 2.0
"""How long a failed compaction waits until the daemon knows; else its lease ends by itself."""

DRAIN_TIMEOUT_S: Final = 30.0
"""A draining daemon gives what is queued this long to reach the disk."""

HOUSEKEEPING_S: Final = 30.0
"""The only timer of an idle daemon: closes idle sessions and checks its root and socket."""

ROOM_LOOK_S: Final = 1.0
"""A command relies on a check of free space, sizes and the root's lock that is at most so old."""

IDLE_LOOK_S: Final = 0.01
"""Shortest interval between the checks whether an idle daemon can end."""

ADAPTER_IDLE_EXIT_S: Final = 60.0
"""The daemon of an adapter's own tree ends after this long without a user: those that were killed
said no goodbye. It starts again within a tenth of a second."""

LOCK_NOTE_BYTES: Final = 4096
"""A root's lock file keeps this size: a disk that is full has no block for one that was empty."""

SOCKET_PATH_BYTES_MAX: Final = 107
"""`sun_path` has 108 bytes and ends with NUL: no socket has a longer path."""

# --- sockets of this machine -------------------------------------------------------------------

MESSAGE_FRAMES_MAX: Final = 4
"""Frames of a message that are kept: a REQ socket's empty one, header, records, one too many."""

CONNECTIONS_WAITING_MAX: Final = 1024
"""Connections that wait while the daemon is busy; the kernel refuses more, and they come again."""

# --- commits on their way to the disk ----------------------------------------------------------

INLINE_SYNC_S: Final = 0.001
"""A faster commit runs on the event loop, whose others wait so long; a thread hop costs 0.1 ms."""

COMMIT_THREADS_MAX: Final = 8
"""Commits of different sessions at a time: with 8 a file system makes eleven times as many durable
as one after the other, and with 16 hardly more."""

SYNCS_REMEMBERED_MAX: Final = 7
"""Commits whose fastest quarter gives the speed of the disk, despite single slow ones."""
