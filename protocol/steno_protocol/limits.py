"""Bounds of the protocol, the daemon and the client.

The unit is in each name and the reason beside each number. Bounds that neither the protocol nor the
daemon uses are the client's: `steno.llm.limits` for calls to a model, `steno_cli.command_limits`
for the command line.
"""

import sys
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# --- requests of one client --------------------------------------------------------------------

RECORD_BYTES_MAX: Final = 16 * MIB
"""Bytes of one record. Agents send images of up to 10 MiB, which are 13.4 MiB in base64."""

ROLE_BYTES_MAX: Final = 64
"""Bytes of a message's role in UTF-8; the longest name in use, `assistant`, has 9."""

RECORD_DEPTH_MAX: Final = 100
"""Nesting of one record. The JSON reader of Python 3.11 fails at a depth of 997; readers stay far
below."""

BATCH_RECORDS_MAX: Final = 4096
"""Records of one atomic batch; the stamp of a line has four digits for its number."""

BATCH_BYTES_MAX: Final = 64 * MIB
"""Bytes of one atomic batch, which is written with one call and stays in memory until it is
synced."""

FAST_CHECK_BYTES_MAX: Final = 1 * MIB
"""Bytes of records that are decoded in one call; decoded records take up to thirty times as much
memory. A larger request travels in a message of its own."""

MESSAGE_REQUESTS_MAX: Final = 256
"""Requests of one message; the writers get their turn after each message."""

HEADER_BYTES_MAX: Final = 1 * MIB
"""Bytes of one request's command as JSON; its largest field is a system prompt."""

MESSAGE_HEADER_BYTES_MAX: Final = 2 * HEADER_BYTES_MAX
"""Bytes of a message's header frame with all its requests; a longer one is not decoded."""

FRAME_BYTES_MAX: Final = MESSAGE_HEADER_BYTES_MAX + 64 * KIB
"""Bytes of one frame, room for the longest header: libzmq keeps `RECEIVE_QUEUE_MESSAGES` for each
client before the daemon sees them. Records beyond it travel in parts."""

PART_BYTES: Final = 64 * KIB
"""Bytes of records in one part of a message; libzmq hands out a part of each client in turn.

While a client floods, one or two of its parts are received for each message of another, and this
costs both cores time: a client beside records of 1 MiB to 15 MiB kept 0.3 of its rate with parts of
1 MiB, and keeps 0.6 with these; a record of 15 MiB alone takes 110 ms, 140 ms with the large ones
(2026-11-29)."""

ASSEMBLED_BYTES_MAX: Final = BATCH_BYTES_MAX + MIB
"""Bytes of records of one message in parts. A batch slightly over its limit gets an error reply."""

ASSEMBLIES_BYTES_MAX: Final = 2 * ASSEMBLED_BYTES_MAX
"""Bytes of the parts of all unfinished messages: two of the largest batches. Beyond it the daemon
forgets the message that was continued least recently, whose client sends it again."""

MESSAGE_REFUSALS_MAX: Final = 1024
"""Error replies to one oversized message: 1 024 take 10 ms, 95 000 would take a second."""

REQUEST_ID_BYTES_MAX: Final = 64
"""Bytes of a request id, which the daemon echoes and does not interpret."""

KEY_CHARS_MAX: Final = 64
"""Characters of an idempotency key; a uuid7 has 36."""

NAME_CHARS_MAX: Final = 64
"""Characters of a client's name, the `_by` of the lines that it writes."""

SESSION_ID_CHARS_MAX: Final = 255
"""Characters of a session id, slashes and mount included; Linux allows 255 bytes a path segment."""

SESSION_SEGMENT_CHARS_MAX: Final = 128
"""Characters of one segment of a session id; a folder's name has 255 bytes at most."""

WHY_CHARS_MAX: Final = 1000
"""Characters of a reason: a few sentences, since readers read the timeline as a whole."""

TITLE_CHARS_MAX: Final = 200
"""Characters of a session's title: one or two lines of a terminal."""

LABELS_MAX: Final = 64
"""Labels of one session; `list` reads the labels of every session."""

PRESERVED_MESSAGES_MAX: Final = 10_000
"""Messages that a compaction leaves as they are; the default is 2."""

DMAIL_CHARS_MAX: Final = 100_000
"""Characters of a D-Mail, which travels in a header and stays in the timeline."""

COMPACTION_LEASE_MS: Final = 60_000
"""Lease of a compactor. A compactor that is alive renews it after a third of this time."""

COMPACTION_SILENT_LEASE_MS: Final = 600_000
"""Lease of a compactor that cannot renew it: a model's answer takes minutes at most."""

COMPACTION_LEASE_MS_MAX: Final = 3_600_000
"""Longest lease, for a compactor that cannot renew it; an abandoned one blocks others."""

COMPACTION_ATTEMPTS_MAX: Final = 8
"""Attempts to choose a cut beside concurrent rewrites before the compactor is asked to retry."""

COUNT_MAX: Final = 2**53
"""Largest number of tokens, bytes or checkpoints: exact in every language that has JSON."""

CRC_MAX: Final = 2**32 - 1
"""Largest CRC-32: it has 32 bits."""

SUBSCRIPTIONS_PER_PEER_MAX: Final = 256
"""Subscriptions of one connection; each costs the daemon about 1 KiB and one feed entry."""

SUBSCRIPTION_WINDOW_BYTES_MAX: Final = 16 * MIB
"""Largest flow-control window of a subscription: sixteen blocks."""

SUBSCRIPTION_WINDOW_BYTES: Final = 4 * MIB
"""Window that a client asks for: four blocks, so that it decodes one while the next travels."""

SUBSCRIPTION_PACE_MS_MAX: Final = 10_000
"""Longest pace of a subscription; the daemon keeps up to one block per file in memory for it."""

CLIENT_REQUESTS_MAX: Final = 65_536
"""Requests in flight of one client; each belongs to a waiting caller."""

CLIENT_LOOKUPS_MAX: Final = 64
"""Requests in flight of one client that read files. The daemon reads for 16 at a time, and sixteen
such clients fill its `READERS_MAX` places."""

HANDSHAKE_MS: Final = 10_000
"""Duration of a handshake. Over TCP it takes three round trips, which are seconds by satellite; a
peer that never completes it occupies a file handle for this long."""

HEARTBEAT_MS: Final = 10_000
"""Time between two heartbeats over TCP, where a machine that dies closes no connection."""

HEARTBEAT_TIMEOUT_MS: Final = 3 * HEARTBEAT_MS
"""Silence over TCP after which a client closes its connection: three lost heartbeats."""

CLUSTER_HEARTBEAT_MS: Final = 1_000
"""Time between two heartbeats of a client that has further daemons of a cluster to go to."""

CLUSTER_HEARTBEAT_TIMEOUT_MS: Final = 2_500
"""Silence after which such a client goes to the next one. A frame of the largest size arrives in
that time at 7 Mbit/s, which is slow between the hosts of a cluster."""

CLIENT_SILENCE_MS: Final = 12 * HEARTBEAT_MS
"""Silence over TCP after which the daemon closes a connection. Only whole frames count: the largest
one arrives in time at 0.15 Mbit/s."""

ANSWER_SOON_MS: Final = 20
"""Time that a blocking client waits for a reply before it watches the connection as well."""

CLIENT_TURN_MESSAGES: Final = 256
"""Messages that a client decodes before other tasks get a turn: about 10 ms of blocks."""

CLIENT_TURNS_MAX: Final = 16
"""Turns of decoding before a blocking client sends a mutation: a window of events fits into them,
and a busy session does not delay the client's requests."""

REFRESH_S_MAX: Final = 1.0
"""Duration of a refresh beside writers that never pause; one window takes a fifth of it."""

EVENT_COST_BYTES: Final = 1 * KIB
"""Cost of a records event beside its block, so that small events use up the window, too."""

FANOUT_MAX: Final = 16
"""Followers that receive a commit before the next command is handled: about 0.2 ms."""

FANOUT_EVENT_S: Final = 0.0005
"""Pause between the events of two commits for each further follower. An event costs both ends about
0.06 ms, so the writer keeps nine tenths of its time."""

FANOUT_PAUSE_S_MAX: Final = 0.25
"""Longest such pause; a person who watches does not notice it."""

REWRITE_HISTORY_MAX: Final = 4096
"""Rewrites of an open file that followers find without reading the timeline, 0.2 KiB each."""

REWRITES_READ_MAX: Final = 256
"""Rewrites kept from one read of the timeline: sixteen distant followers do not evict each
other's."""

SUBSCRIBER_STALL_S: Final = 60.0
"""Time without credit after which a subscriber gets `lagged` and is removed."""

JOIN_SESSIONS_MAX: Final = 64
"""Sessions that join a cluster together; more of them, or several such requests at a time, join no
faster."""

# --- resources of the daemon -------------------------------------------------------------------

MAILBOX_COMMANDS_MAX: Final = 4096
"""Commands in one writer's mailbox: 64 clients with 64 in flight each. The next one is `busy`."""

MAILBOX_BYTES_MAX: Final = BATCH_BYTES_MAX
"""Bytes in one writer's mailbox: the largest batch. A client that sends more without waiting for
replies gets `busy`."""

INFLIGHT_BYTES_MAX: Final = 256 * MIB
"""Bytes in all mailboxes together: four full ones."""

READERS_MAX: Final = 1024
"""Requests that read files at a time; the next one is `busy`. A longer queue would outlast the
resend interval of its clients, who then miss the reply to the first request."""

PEER_READERS_MAX: Final = 256
"""Requests of one connection that read files, so that it cannot occupy every place."""

ANSWERS_TOGETHER_MAX: Final = 512
"""Replies in one message; about 64 KiB of JSON."""

BURST_REQUESTS_MAX: Final = 256
"""Requests that are received before the writers get their turn."""

REQUEST_COST_BYTES: Final = 32 * KIB
"""Bytes of records that count as one more request in a burst: checking them takes as long."""

REQUEST_S: Final = 60e-6
"""Time that a request takes at least, its decision after the burst included."""

HEAVY_REQUESTS_MIN: Final = 4
"""Requests of one peer in a burst from which on their time is counted: who waits for each reply has
one, and counting would cost its append a microsecond."""

LIGHT_SHARE_MAX: Final = 0.25
"""Share of the daemon's time that a peer may take without becoming heavy."""

HEAVY_FROM_S: Final = MESSAGE_REQUESTS_MAX * REQUEST_S
"""Time beyond that share from which on a peer is heavy: that of the longest message, or each of
many equal clients would be heavy for a moment after its message."""

HEAVY_REMEMBERED_S: Final = HEAVY_FROM_S + 0.018
"""Most time beyond its share that is remembered of a peer, so that it is heavy for 72 ms after its
flood."""

SHARED_S: Final = 0.05
"""Time after a message of another peer for which heavy peers wait between their turns."""

TURN_BEGIN_S: Final = 0.0005
"""Time for the messages of one turn. At least one is served."""

TURN_S_MAX: Final = 0.25
"""Time after which a turn ends though its peer waits for answers: a message of another program is
not answered at all."""

TURN_COUNTED_S_MAX: Final = 1.0
"""Longest turn that its pause is in proportion to: 15 MiB on a busy machine take half as long."""

PAUSE_TURNS_MIN: Final = 3.0
"""Length of the pause after a turn, in turns: a heavy peer has the quarter that makes it one."""

HELD_BYTES_MAX: Final = BATCH_BYTES_MAX
"""Bytes of the messages that wait for their turn at one socket: the largest batch."""

HASTY_COMMANDS_MAX: Final = 16
"""Commands of a session up to which a group commit serves it first: 16 decisions take as long as
one fast sync."""

GROUP_COMMANDS_MAX: Final = 512
"""Commands of one group commit. Other writers get their turn after it, so that a flood on one file
delays an ack on another by one group, about 15 ms."""

GROUP_BYTES_MAX: Final = 2 * MIB
"""Bytes of one session in a group commit, unless one command has more: bounds the duration of one
sync, for which other sessions wait, and the extent of one failure."""

KEYS_MAX: Final = 1024
"""Keys that an open file's writer remembers, about 300 bytes each: 64 clients with 16 in flight
each. An older key is looked up in the files."""

UNSTAMPED_KEYS_MAX: Final = 4096
"""The same for a session whose lines have no stamps, since no file has its keys: a full mailbox."""

KEYS_KEPT_MAX: Final = 16 * UNSTAMPED_KEYS_MAX
"""Keys of closed sessions whose lines have no stamps, about 16 MiB: no file has these keys."""

UNKNOWN_KEYS_MAX: Final = 4 * MAILBOX_COMMANDS_MAX
"""Keys of commands that were answered `unknown`, in one daemon, about 2 MiB: four full mailboxes on
a failing disk. After more of them each key counts as one."""

REPAIRED_SESSIONS_MAX: Final = 256
"""Sessions whose repairs wait for a reply that reports them; the timelines have them all."""

REPAIRS_OF_SESSION_MAX: Final = 16
"""Repairs of one session that wait for a reply: another program may leave half lines again and
again."""

KEY_FILTER_LINE_BYTES: Final = 256
"""Bytes of a line with a key, for the size of a key filter: half of a short message's line."""

KEY_BLOCK_BYTES: Final = 32 * KIB
"""Bytes of whole lines that a thread searches for keys in one step. The event loop waits for its
end, 0.2 ms; and what stays in the processor's cache takes half the time."""

KEY_FILTER_KEYS_MIN: Final = 4096
"""Keys that are added to a key filter before a larger one is built, at least."""

KEY_FILTER_KEYS_MAX: Final = 1 << 21
"""Keys in a key filter, 4 bytes each: 8 MiB. For another key the generations that did not fit are
read."""

KEY_FILTER_BUCKET_KEYS_MAX: Final = 32
"""Keys in a bucket of a key filter when it is made, on average; a bucket takes 2 us to search. With
20 bits of each hash, one unused key in 30 000 is a false positive, and reads the session's files;
in the largest filter it is one in 2 000."""

KEY_FILTER_BUCKETS_MIN: Final = 128
"""Buckets of the smallest key filter, 12 KiB: as many as `KEY_FILTER_KEYS_MIN` keys need."""

KEY_FILTER_BUCKETS_MAX: Final = 4096
"""Buckets of the largest key filter. More of them do not fit into the processor's cache, which
would take as much time as the rest of a build; searching the largest takes 30 us."""

BLOCK_BYTES: Final = 1 * MIB
"""Bytes of whole lines in one block of a read or of a backlog."""

FREED_BYTES_MAX: Final = 8 * MIB
"""Free memory that each heap of the daemon retains; below that every block costs a system call."""

MAPPED_BLOCK_BYTES: Final = 4 * MIB
"""Size from which a memory block has its own mapping, which is returned when it is freed. The
blocks of a usual read are smaller."""

OPEN_SESSIONS_MAX: Final = 512
"""Sessions with open files at a time; the daemon closes the least recently used one."""

HANDLES_PER_SESSION_MAX: Final = 4
"""File handles of an open session: folder and file, for the context and for the wire file."""

FORK_ORIGINS_MAX: Final = 32
"""Sessions whose checkpoint handles a fork accepts: its source, the source's source and so on.

One more costs 40 bytes in the fork's timeline; a chain of undos creates one with each."""

STREAMS_MAX: Final = 1000
"""Streams of one session: the list of them is one reply, and every opening reads the folder."""

STREAMS_OPEN_MAX: Final = 128
"""Streams of one session that are open at a time; the least recently used one is closed."""

HANDLES_PER_STREAM_MAX: Final = 2
"""File handles of an open stream: folder and file."""

STREAM_NAME_CHARS_MAX: Final = 64
"""Characters of a stream's name, so that the name of a deleted stream's file has at most 165."""

HANDLES_PER_CONNECTION_MAX: Final = 12
"""File handles that a client's first connection takes. libzmq ends the process if it finds none
midway."""

HANDLES_MIN: Final = 253
"""File handles that a daemon needs to start: 21 at rest with TCP, 12 to connect, 4 a session, 16
clients, and 200 that libzmq accepts at once, since it ends the process if it finds none for one.
Measured without TCP: with a session and 16 clients 35 are open, and a burst of 200 connections ends
a daemon of 200 handles and not one of 224."""

HANDLES_RESERVE_MAX: Final = 256
"""File handles that stay free (at most an eighth of all) for reads, rewrites and the connections
that libzmq accepts before the event loop runs: 10 000 a second in a test."""

HANDLES_RECOUNT_S: Final = 0.01
"""Pause before handles are counted again after none was free: counting 20 000 takes as long."""

RETIRED_TOGETHER_MAX: Final = 8
"""Sessions that are closed together to make room: finding them costs more than 1 ms each time."""

SESSION_IDLE_S: Final = 60.0
"""Time after which an unused session is closed, so that it costs no memory."""

LIST_PAGE_SESSIONS_MAX: Final = 1000
"""Sessions of one `list` reply unless the client asks for another number: about 200 KiB."""

LIST_SESSIONS_MAX: Final = 10_000
"""Sessions of one `list` reply; `after` continues the list."""

LIVE_S: Final = 15.0
"""Time after a change for which `list` calls a session live: a model's turn has longer pauses, but
a person who looks at the list means now."""

COUNTED_BYTES_MAX: Final = 8 * MIB
"""Bytes behind the recovery point of a session that `list` reads to count its records: nearly every
session of kimi-cli is smaller."""

COUNTED_TOGETHER_BYTES_MAX: Final = 256 * MIB
"""Bytes that one `list` reads to count records, so that its reply takes about a second at most."""

EXPANDED_TO_READ_BYTES_MAX: Final = 8 * MIB
"""Bytes of a compressed stream that each page of a read expands again, in 8 ms; a larger stream is
expanded on the disk, once."""

SESSION_TREE_DEPTH_MAX: Final = 8
"""Levels of folders that `list` descends below `sessions/` or a mount."""

TRACKED_FRAME_BYTES: Final = 64 * KIB
"""Size from which a frame is sent without a copy, and libzmq reports its release. To copy a smaller
one costs less."""

PEER_LOANS_BYTES_MAX: Final = 32 * MIB
"""Bytes in flight to one connection above which its reads wait, then are `busy`."""

PEER_ROOM_WAIT_S: Final = 0.5
"""Wait of a read for its connection to receive earlier replies, before it is `busy`."""

UNREAD_BYTES_MAX: Final = 48 * MIB
"""Bytes in flight to all connections above which each one gets an equal share, and blocks shrink to
`CROWDED_BLOCK_BYTES`. Without it forty clients that read nothing held 1.5 GiB."""

CROWDED_BLOCK_BYTES: Final = 256 * KIB
"""Bytes of a block that is read while more than `UNREAD_BYTES_MAX` bytes are in flight."""

FORGET_S: Final = 1.0
"""Delay after which the client of a closed connection is removed and its memory is released."""

PEER_EVENTS_BYTES_MAX: Final = 8 * MIB
"""Bytes in flight to one connection above which its subscriptions pause: two windows."""

UNTRACKED_BYTES_MAX: Final = 1 * MIB
"""Bytes of copied frames after which the next frame is tracked: its release shows that the frames
before it were sent, too."""

PEER_CHECK_S: Final = 0.02
"""Interval between checks of a stalled connection: no system call reports that a peer read."""

READ_AHEAD_BYTES_MAX: Final = 2 * MIB
"""Bytes that a client requests at a time in a long read. With 1 MiB the round trip takes longer
than the transfer; 8 MiB are no faster, and a hundred readers would take a GiB."""

FILE_BLOCK_BYTES: Final = 256 * KIB
"""Bytes that a blocking client reads at a time from a session's file. They fit into the processor's
caches, where splitting them takes two thirds of the time of 1 MiB."""

PEER_BLOCKS_READ_MAX: Final = 4
"""Blocks that are read at a time for one connection; its other reads wait for their turn."""

RECEIVE_QUEUE_MESSAGES: Final = 16
"""High-water mark of what libzmq receives from one peer before the daemon handles it. steno's
clients send up to 256 requests in a message, so they wait for replies before they reach it."""

SEND_QUEUE_MESSAGES: Final = 4096
"""High-water mark of one peer's send queue. A peer that reads no replies loses the next ones."""

PEERS_MAX: Final = 10_000
"""Connections that the daemon remembers; it removes the oldest one first."""

PEERS_LOOK_S: Final = 0.1
"""Interval between checks for closed connections: one check of 10 000 takes 6 ms."""

# --- the disk ----------------------------------------------------------------------------------

QUARANTINE_FILES_MAX: Final = 8
"""Distinct damages kept for one session; repeated repairs must not fill the disk."""

TORN_TAIL_BYTES_MAX: Final = 2 * BATCH_BYTES_MAX
"""Distance from the end of a file within which recovery looks for the start of a torn batch."""

MARK_BYTES: Final = 4 * MIB
"""Appended bytes after which the recovery point is renewed (twice as many at most): opening the
file replays them, which takes 10 ms."""

UNPROVEN_BYTES_MAX: Final = 2 * MARK_BYTES + BATCH_BYTES_MAX
"""Bytes at the end of a file without a recovery point that may never have been synced, since one is
written at least so often. Opening the file writes them again."""

MILESTONES_MAX: Final = 256
"""Points of a file whose numbers are remembered, 100 bytes each and at least a block apart: a
revert replays the file from the last point before its checkpoint."""

CHECKSUM_BLOCK_BYTES: Final = 1 * MIB
"""Bytes of a file under one checksum. A rewrite reads at most one block of the part that it keeps
(0.3 ms), and the recovery point of a session of 1 GiB grows by 11 kB."""

STAMP_BYTES_MAX: Final = 128
"""Bytes at the end of a line that contain its stamp: a key of 64 characters, two numbers, quotes,
the brace and the newline are 85."""

FINGERPRINT_BYTES: Final = 64 * KIB
"""Bytes before an offset whose CRC-32 identifies the file up to there."""

FOREIGN_SETTLE_S: Final = 2.0
"""Time for which a half line in a shared folder counts as another program's write in progress."""

FOREIGN_POLL_S: Final = 5.0
"""Interval between polls of the followed sessions of a mount; each foreign change becomes a
timeline entry."""

MEND_LOOKS_MAX: Final = 8
"""Attempts to repair a torn tail that another program keeps changing, before opening fails."""

COPY_BYTES: Final = 8 * MIB
"""Bytes of one copy step, so that a long rewrite can be counted and stopped."""

READ_THREADS_MAX: Final = 16
"""Reads, copies and recoveries at a time; more would only wait for the disk or for each other."""

THREAD_SWITCH_S: Final = 0.0005
"""Time that a decoding thread may hold the interpreter while the event loop waits. Python's default
of 5 ms would delay every ack beside it."""

GC_OBJECTS_MAX: Final = 20_000
"""New objects between two garbage collections; Python's default of 700 costs 5 % of the time."""

WRITTEN_SYNC_S: Final = 1.0
"""Delay after which bytes that were acknowledged as `written` are synced."""

LIVE_SYNC_S: Final = 0.05
"""The same delay while the file has followers: a person sees no delay."""

UNSYNCED_BYTES_MAX: Final = 8 * MIB
"""Bytes acknowledged as `written` after which the next group is synced. They stay in memory until
then, and syncing a second's flood at once would delay every command behind it."""

SLOW_SYNC_S: Final = 0.5
"""Duration above which a sync is logged as slow, unless the configuration differs."""

LOG_BYTES_MAX: Final = 8 * MIB
"""Bytes of `stenod.log` before it is rotated, unless the configuration differs: any editor opens
it."""

LOG_BYTES_LEAST_MAX: Final = 64 * KIB
"""Smallest allowed log; a burst of errors would rotate its own beginning out of a smaller one."""

LOG_FILES_MAX: Final = 3
"""Rotated logs that are kept, unless the configuration differs: 32 MiB of history in all."""

CONFIG_BYTES_MAX: Final = 256 * KIB
"""Bytes of `config.toml`; the example with every option has 4 KiB."""

ADDRESSES_MAX: Final = 16
"""Addresses of one option; a cluster has three or five servers."""

REDACT_PATTERNS_MAX: Final = 100
"""Entries of the table `[redact]`; each one is searched for in every text that is shown."""

REDACT_CHARS_MAX: Final = 1000
"""Characters of one pattern there; a longer one is several."""

REDACT_SESSIONS_MAX: Final = 100
"""Sessions that are masked before they are written; each command is compared with all of them."""

FREE_BYTES: Final = 16 * MIB
"""Free space reserved for timelines, quarantine and the log; the largest record fits into it."""

# --- checking files ----------------------------------------------------------------------------

LINE_CHECKED_BYTES_MAX: Final = 64 * MIB
"""Bytes of a line that a check or a daemon keeps in memory; a longer line, always another
program's, is only counted by a check, and keeps a session from being opened."""

WELD_TOKENS_MAX: Final = 1_000_000
"""Tokens of a broken line that may yield no record, seconds of work, before the rest of the line
counts as damage."""

WELD_DEPTH_MAX: Final = 1000
"""Nesting up to which a broken line is decoded; readers fail there as well."""

TIME_FALL_S: Final = 1.0
"""Seconds by which the timestamp of an event may fall unreported: two clients write at a time."""

CHECKED_KEYS_MAX: Final = 262_144
"""Commands of one file among which a check detects a duplicate; about 25 MiB."""

VERIFY_ATTEMPTS_MAX: Final = 4
"""Attempts to verify a session whose writer changed it meanwhile, before a result is accepted."""

VERIFICATIONS_MAX: Final = 2
"""Sessions that are verified at a time: each reads all its files, and writers have to go on."""

FINDINGS_LISTED_MAX: Final = 1000
"""Findings of one session or file that are listed; the others are counted by kind."""

REPAIR_EDITS_MAX: Final = 250_000
"""Places of one file that one repair changes, 120 bytes each; transcripts have fewer."""

STATE_BYTES_MAX: Final = 1 * MIB
"""Bytes of a session's `state.json`; kimi-cli keeps its tasks there, a few KiB."""

DAMAGED_STATES_MAX: Final = 100
"""Damaged copies of `state.json` kept beside the present one; more mean a broken program."""

DAY_S: Final = 86_400.0
"""Seconds of a day: the expiry of trash and old generations is configured in days."""

TRASH_EXPIRY_S: Final = 30 * DAY_S
"""Time for which a deleted session can be restored: a month, as desktops keep it."""

RETENTION_S: Final = DAY_S
"""Time between two automatic collections by the rules of `[retention]`. For as long no rule moves
a changed session to the trash, or removes a deleted one: a client may still retry its command."""

TRASH_SWEEP_S: Final = DAY_S
"""Interval between sweeps of expired trash, beside one at each start: a month's expiry needs no
more."""

TRASH_SWEEP_ENTRIES_MAX: Final = 256
"""Expired sessions that one sweep of a tree removes; the next round continues."""

RENAMES_FOLLOWED_MAX: Final = 16
"""Renames in a row that are followed from an old id: a session that was renamed back and forth
would lead in circles."""

MOVES_SWEEP_MAX: Final = 4096
"""Expired records of renames and restorations that one sweep of a tree removes."""

FOLDER_DEPTH_MAX: Final = 64
"""Levels of folders that a removal descends; each level costs it a file handle."""

# --- waiting -----------------------------------------------------------------------------------

REQUEST_TIMEOUT_S: Final = 30.0
"""Time that a client spends on one request, resends included, unless the caller differs."""

REQUEST_TIMEOUT_S_MAX: Final = 1e6
"""Longest timeout of one request: eleven days, in practice no limit."""

RESEND_S: Final = 2.0
"""Delay before a request without a reply is sent again; it doubles up to `RESEND_S_MAX`."""

RESEND_S_MAX: Final = 8.0
"""Longest delay between two resends, a fraction of a request's timeout."""

BUSY_RETRY_S: Final = 0.02
"""Delay before a request with the reply `busy` is sent again; it doubles up to `RESEND_S`."""

SLOW_BYTES_S: Final = 125_000
"""Bytes a second of the slowest supported connection, 1 Mbit/s. The resend of a request that takes
longer than `RESEND_S` on it is delayed as much, because copies would delay the replies."""

RECONNECT_S: Final = 0.05
"""Delay before a client connects again; it doubles up to `RECONNECT_S_MAX`."""

RECONNECT_S_MAX: Final = 1.0
"""Longest time until a follower notices a restarted daemon."""

START_LOCK_POLL_S: Final = 0.02
"""Interval at which clients that wait for another client's start check for the daemon."""

START_LOCK_POLLS_MAX: Final = 10
"""Checks in the time that a client has waited so far; later ones are rarer. Three hundred waiting
clients would take the processors that the daemon needs to start."""

START_LOCK_S: Final = 5.0
"""Seconds that a client waits for another client's start, or half of its own timeout if that is
less. Then one more client starts a daemon, since the first one may hang: a start takes 0.4 s."""

SPAWN_TIMEOUT_S: Final = 20.0
"""Time within which a started daemon has to be ready; after it the start has failed. A daemon gives
its cluster's servers 15 s and then says why it ends."""

LAST_WORDS_BYTES: Final = 2048
"""End of the daemon's log that an error shows, when a start gives no other reason."""

LAST_WORDS_LINES_MAX: Final = 3
"""Lines of it."""

PROCESS_LOOKS_MAX: Final = 5
"""Looks at a silent daemon's process before an error advises to end it."""

PROCESS_LOOK_S: Final = 0.02
"""Interval between them: a thread that uses a tenth of a processor is seen in 0.1 s."""

STARTS_MAX: Final = 3
"""Failed starts before a client gives up. One killed start does not predict the next; three do."""

PROBE_TIMEOUT_S: Final = 2.0
"""Time without a reply to `hello` after which a local daemon is unreachable."""

REMOTE_PROBE_TIMEOUT_S: Final = 10.0
"""The same time for a daemon on another machine: connection, handshake and greeting take five round
trips, and a lost packet one to three seconds."""

REMOTE_TURNED_AWAY_S: Final = 2.0
"""Time for which a client tries again when a daemon on another machine closes its connections. A
flood of connections at that address passes; a key file for another daemon does not."""

SOCKET_DOUBT_S: Final = 0.05
"""Time without a connection after which a client checks that the system allows it a socket. A local
daemon takes 1 ms."""

SOCKET_CHECK_S: Final = 0.2
"""Longest duration of that check. A system that forbids a connection says so at once."""

CONNECT_SLICE_S: Final = 0.05
"""Time that a blocking client spends on one attempt to connect before it checks its clock."""

ENDPOINTS_MAX: Final = 16
"""Addresses of one cluster that a client tries in turn."""

REDIRECTS_MAX: Final = 4
"""Owners that daemons may name in a row for one request before the first daemon is asked again,
after a pause. A hand-over names one, and one more for each that follows it at once."""

OWNER_PAUSE_S: Final = 0.05
"""Pause before the first daemon is asked again for the owner of a session; it doubles up to
`OWNER_PAUSE_S_MAX`."""

OWNER_PAUSE_S_MAX: Final = 0.4
"""Longest such pause: a client notices a takeover, which takes 2.5 s, so much later."""

OWNER_CONNECT_S: Final = 1.0
"""Time that a request waits for the connection to an owner before the first daemon is asked again;
the attempt to connect goes on meanwhile."""

OWNER_SILENCE_S: Final = 1.0
"""Silence of an owner after which it is greeted, and after as much again without a reply the first
daemon is asked. A stopped process closes no connection."""

OWNER_LINKS_MAX: Final = 64
"""Owners that one client is connected to at a time, more than a cluster has daemons."""

OWNED_SESSIONS_MAX: Final = 65_536
"""Sessions whose owners a client remembers; a forgotten one costs one more question."""

COMPACTION_ABORT_S: Final = 2.0
"""Time that a failed compaction spends on notifying the daemon; otherwise its lease expires."""

DRAIN_TIMEOUT_S: Final = 30.0
"""Time within which a draining daemon writes and syncs the queued commands."""

HOUSEKEEPING_S: Final = 30.0
"""Interval at which an idle daemon closes idle sessions and returns memory."""

ROOT_WATCH_S: Final = 1.0
"""Longest interval between two checks of a daemon that its root and socket are in place. Without
the socket no client can notify it, and clients wait. It checks at once when the kernel reports a
change, which not every file system does. A check takes 0.2 ms of processor time, 0.02 % of one."""

LIFE_SIGN_S: Final = 10.0
"""Shortest interval between two updates of the lock's time by a daemon that answers clients. A
daemon without clients writes nothing."""

ANSWERED_LATELY_S: Final = 60.0
"""Age of that time up to which no client advises to end the daemon's process."""

IDLE_EXIT_S: Final = 3600.0
"""Time without clients and unsynced bytes after which a daemon in the background exits, unless the
configuration differs. Its memory and its folder are then free; a start takes 0.3 s."""

ROOM_CHECK_S: Final = 1.0
"""Age up to which a command relies on a check of free space, sizes and the root's lock."""

IDLE_CHECK_S: Final = 0.01
"""Shortest interval between the checks whether an idle daemon can exit."""

PRIVATE_ROOT_IDLE_EXIT_S: Final = 30
"""Seconds after which the idle daemon of a test run ends, if the run was killed."""

ADAPTER_IDLE_EXIT_S: Final = 60.0
"""Time without clients after which the daemon of an adapter's own tree exits, since a killed client
does not stop it. It starts again within a tenth of a second."""

LOCK_NOTE_BYTES: Final = 4096
"""Bytes of a root's lock file, reserved once: a full disk has no block left for an empty file."""

NOTE_READS_MAX: Final = 10
"""Times that a client reads a note that is no JSON: its daemon is writing it."""

NOTE_READ_S: Final = 0.001
"""Pause between two of these reads; a write takes some microseconds where nothing displaces it."""

FILE_NAME_BYTES_MAX: Final = 255
"""Bytes of the name of a file or folder on Linux and macOS."""

ROOT_BYTES_MAX: Final = 512 if sys.platform == "darwin" else 2048
"""Bytes of a root's path: half of what a system call takes, the rest is for files in sessions."""

SHOWN_CHARS_MAX: Final = 80
"""Characters of a session id or path without bounds that an error shows."""

SOCKET_PATH_BYTES_MAX: Final = 103 if sys.platform == "darwin" else 107
"""Bytes of a socket's path: `sun_path` ends with NUL and has 108, on macOS 104."""

# --- sockets of this machine -------------------------------------------------------------------

MESSAGE_FRAMES_MAX: Final = 4
"""Frames of a message that are kept: the empty one of a REQ socket, header, records, one excess."""

CONNECTIONS_WAITING_MAX: Final = 1024
"""Backlog of the listening socket. The kernel refuses further connections, and clients retry."""

# --- connections from other machines ----------------------------------------------------------

REMOTE_HANDLES_SHARE_MAX: Final = 4
"""Divisor of the daemon's file handles for connections from other machines: half of the handles is
for sessions, and an eighth stays free."""

REMOTE_CONNECTIONS_MAX: Final = 4096
"""Connections from other machines: a quarter of the relay's handles."""

RELAY_HANDLES_MAX: Final = 4 * REMOTE_CONNECTIONS_MAX
"""File handles of the relay, so that ended ones are found quickly; two a client, one a stranger."""

RELAY_BYTES: Final = 64 * KIB
"""Bytes that the relay passes on at a time, and keeps for an end that does not receive: two such
blocks for each client."""

RELAY_ACCEPTS_MAX: Final = 64
"""Connections that the relay accepts before it serves the others: about 2 ms."""

RELAY_CHECK_S: Final = 1.0
"""Interval of the relay's check for handshakes that take too long."""

METRICS_CONNECTIONS_MAX: Final = 8
"""Connections to the metrics address at a time; Prometheus uses one."""

# --- commits on their way to the disk ----------------------------------------------------------

INLINE_SYNC_S: Final = 0.001
"""Duration up to which a commit runs on the event loop, which blocks meanwhile; a thread hop costs
0.1 ms."""

LOOP_SYNC_BYTES_MAX: Final = 256 * KIB
"""Bytes of a commit that the event loop awaits where a disk can wait there. To write them and to
send them takes a millisecond, for which other sessions wait."""

SLOW_GROUP_S: Final = 0.02
"""Time after which a commit of a cluster no longer delays the next one. A commit takes 1 to 5 ms;
sixteen sessions that are committed together get a fifth more acks than one by one."""

THREAD_RETRY_S: Final = 0.1
"""Pause before a commit that must not block the event loop asks again for a thread."""

THREAD_ATTEMPTS_MAX: Final = 100
"""Times that it asks before the commit fails: for 10 s."""

COMMIT_THREADS_MAX: Final = 8
"""Commits of different sessions at a time. With 8 a file system commits eleven times as many as one
after the other, and with 16 hardly more."""

SYNCS_REMEMBERED_MAX: Final = 7
"""Commits whose fastest quarter gives the speed of the disk, despite single slow ones."""


def limits_in_hello() -> dict[str, int]:
    """Return the `limits` of the reply to `hello`: every limit of a client's requests by name."""
    return {
        "record_bytes_max": RECORD_BYTES_MAX,
        "record_depth_max": RECORD_DEPTH_MAX,
        "role_bytes_max": ROLE_BYTES_MAX,
        "batch_records_max": BATCH_RECORDS_MAX,
        "batch_bytes_max": BATCH_BYTES_MAX,
        "header_bytes_max": HEADER_BYTES_MAX,
        "message_requests_max": MESSAGE_REQUESTS_MAX,
        "frame_bytes_max": FRAME_BYTES_MAX,
        "part_bytes": PART_BYTES,
        "receive_queue_messages": RECEIVE_QUEUE_MESSAGES,
        "request_id_bytes_max": REQUEST_ID_BYTES_MAX,
        "key_chars_max": KEY_CHARS_MAX,
        "name_chars_max": NAME_CHARS_MAX,
        "session_id_chars_max": SESSION_ID_CHARS_MAX,
        "session_segment_chars_max": SESSION_SEGMENT_CHARS_MAX,
        "count_max": COUNT_MAX,
        "subscriptions_per_peer_max": SUBSCRIPTIONS_PER_PEER_MAX,
        "subscription_window_bytes": SUBSCRIPTION_WINDOW_BYTES,
        "subscription_window_bytes_max": SUBSCRIPTION_WINDOW_BYTES_MAX,
        "subscription_pace_ms_max": SUBSCRIPTION_PACE_MS_MAX,
        "event_cost_bytes": EVENT_COST_BYTES,
        "block_bytes": BLOCK_BYTES,
        "list_sessions_max": LIST_SESSIONS_MAX,
        "mailbox_commands_max": MAILBOX_COMMANDS_MAX,
        "mailbox_bytes_max": MAILBOX_BYTES_MAX,
        "send_queue_messages": SEND_QUEUE_MESSAGES,
        "peer_loans_bytes_max": PEER_LOANS_BYTES_MAX,
        "peer_events_bytes_max": PEER_EVENTS_BYTES_MAX,
    }
