"""The bounds of the viewer, each with its unit and its reason."""

from typing import Final

from steno_protocol.limits import KIB, MIB

ROWS_MAX: Final = 200
"""Rows of one answer: a screen shows about ten; 200 take a tenth of a second to render."""

LOOK_BACK_MAX: Final = 40
"""Lines before a range that are read for the names of its tool calls; a turn rarely has more."""

CALLS_KEPT_MAX: Final = 10_000
"""Tool calls that wait for their results; a file with 100 000 records is made in bounded memory."""

ROWS_KEPT_MAX: Final = 4000
"""Rendered rows that are kept for the next page: the last ones of some twenty busy sessions."""

ROWS_KEPT_BYTES_MAX: Final = 16 * MIB
"""The size of these rows together; most have 1 to 4 KiB."""

ROW_KEPT_BYTES_MAX: Final = 256 * KIB
"""A larger row is not kept: a few of them would take the place of all others."""

TEXT_CHARS_MAX: Final = 20_000
"""The list cuts a longer text; the reader may ask for all of it."""

PARTS_MAX: Final = 500
"""The list cuts a record with more parts and calls, too: 20 000 calls take 3 s."""

WHOLE_TEXT_CHARS_MAX: Final = 4_000_000
"""A text on request; a browser lays out a few million characters in a second."""

MARKDOWN_CHARS_MAX: Final = 40_000
"""A longer text is shown as it is: Markdown takes about 1 ms for each 1 000 characters."""

RECORD_MARKDOWN_CHARS_MAX: Final = 100_000
"""Markdown of one record, which may have any number of texts; the later ones are shown as they
are."""

MARKDOWN_STEPS_MAX: Final = 25_000
"""Places of one record at which the parser tries its rules: 40 000 characters of prose have 6 000,
and as many brackets 80 000, which would take a second."""

CODE_CHARS_MAX: Final = 10_000
"""Longer code has no colours, for the same reason; one step of a lexer takes up to 0.2 s then."""

COLOURING_S_MAX: Final = 0.25
"""The time for the colours of the code in one record; the rest of it has none."""

FOLDED_LINES_MAX: Final = 8
"""Lines of a tool's result that are in sight before it is unfolded."""

IMAGE_BYTES_MAX: Final = 16 * MIB
"""The largest image that is decoded: a record is not larger."""

BODY_BYTES_MAX: Final = 64 * KIB
"""The body of a request: a title, labels or a reason."""

COUNTS_MAX: Final = 40
"""Sessions of one request for token counts: as many as a tall screen shows."""

WATCHES_MAX: Final = 64
"""Sessions that are followed at once; the one that was left first makes room."""

WATCH_LINGER_S: Final = 60.0
"""A watch outlives its last page by this, so that a reload finds it and resumes exactly."""

RESETS_KEPT_MAX: Final = 256
"""Rewrites that a page may have slept through before it has to read the session anew."""

PACE_S: Final = 0.1
"""Between two events of a followed session from the daemon: a person sees no delay, and a busy
writer pays for ten events a second instead of one for each of its appends."""

FEED_INTERVAL_S: Final = 0.04
"""Between two events of one page: a screen shows no more."""

FEED_FULL_RATE_MAX: Final = 4
"""Pages of one session at this rate; more of them get events in proportion more rarely, so that all
together ask for rows no more often than the viewer can answer."""

STREAMS_HELD_MAX: Final = 4
"""Open streams of one browser: it opens six connections to a server for all its pages together, and
other requests need some of them."""

STREAM_RETRY_MS: Final = 1000
"""After this a page without an open stream asks again: it is that much behind at most."""

FEED_COMMENT_S: Final = 15.0
"""Between two comments on a silent stream, so that a proxy does not close it."""

PULSE_S: Final = 1.0
"""Between two requests for the clients of the daemon; one task sends them for all pages."""

PULSE_TIMEOUT_S: Final = 3.0
"""After this silence the page shows that the daemon is away."""

LIST_AGE_S: Final = 2.0
"""The age up to which one list of the sessions serves every page."""

ANSWER_RESTS_MAX: Final = 9
"""After an answer that took a second to make, so many pass before the next one is made: a tenth of
a core at most. The list of 3 000 sessions takes the daemon 0.65 s ..."""

ANSWER_AGE_S_MAX: Final = 15.0
"""... and a page is never further behind than this."""

NOW_AGE_S: Final = 1.0
"""The age up to which one report of the daemon serves every page that shows its state."""

EXPORT_BATCH_BYTES: Final = 64 * KIB
"""Records that are written at once into an exported file, by a thread: it takes as long to hand
over one record as to write it."""

DIFF_LINES_MAX: Final = 4000
"""Differing lines on one side that are compared one by one; more are shown as replaced."""

GENERATIONS_COUNTED_MAX: Final = 200
"""Past generations whose token counts the strip shows, the latest ones."""

SEARCH_PAGE_MAX: Final = 20
"""Results of one answer: each is read from its session."""

INDEX_PAUSE_S: Final = 2.0
"""Between two passes over the sessions while a page shows the search; a pass lists them all."""

TAIL_BYTES_MAX: Final = 512 * KIB
"""The last lines of a followed session that are kept, so that a page's rows cost no read."""

RUNNING_S: Final = 300.0
"""A session that was written in this time counts as running: an agent's command rarely takes
longer, and a person who left is soon out of sight."""

RUNNING_MAX: Final = 24
"""Running sessions that the first page shows; each was read when it changed."""

TODAY_MAX: Final = 500
"""Sessions of today whose tokens and projects the first page adds up."""

LAST_LINES_MAX: Final = 16
"""Last lines of a running session in which words and failed calls are looked for: a turn of an
agent has a few."""

WORDS_CHARS_MAX: Final = 280
"""Characters of the last words: four lines of a narrow screen."""

ORIGINS_A_LOOK_MAX: Final = 40
"""Sessions whose origin one look at the first page reads, some 4 ms each."""

ORIGIN_AGE_S: Final = 10.0
"""The age up to which an origin is shown again: branch and model change with a turn."""

ORIGINS_KEPT_MAX: Final = 1000
"""Origins that are kept, twice as many as the sessions of today, each of half a kilobyte."""

SPENDING_DAY_S: Final = 0.25
"""Time in which one look at the first page reads tokens."""

SPENDING_TABLE_S: Final = 2.0
"""Time in which one request for the sums of all sessions reads tokens; 3 000 sessions take two."""

DASHBOARD_AGE_S: Final = 2.0
"""The age up to which one look serves every page."""
