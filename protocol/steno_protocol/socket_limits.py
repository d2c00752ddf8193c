"""The bounds of a local connection, as `limits` has all others."""

from typing import Final

from steno_protocol.limits import (
    BATCH_BYTES_MAX,
    BATCH_RECORDS_MAX,
    HEADER_BYTES_MAX,
    KIB,
    MIB,
    PEER_LOANS_BYTES_MAX,
)

MESSAGE_FRAMES_MAX: Final = BATCH_RECORDS_MAX + 4
"""Frames of a message that are kept: those before the records, and one record that is too many."""

MESSAGE_BYTES_MAX: Final = BATCH_BYTES_MAX + HEADER_BYTES_MAX + KIB
"""Bytes of a message after which no further frame is kept: the batch is too large by then."""

UNFINISHED_BYTES_MAX: Final = 1024 * MIB
"""Bytes of messages whose end did not come yet, of all connections: who goes beyond is hung up on,
comes again, and sends it again. Fifteen of the largest batches; clients took 1.6 GiB without it."""

COMMAND_FRAME_BYTES_MAX: Final = 16 * KIB
"""A frame by which the ends speak of the connection itself: some names, 255 bytes of identity."""

GATHERED_BYTES_MAX: Final = 64 * KIB
"""Bytes that are copied together for one call of the kernel, and that it is asked for at a time."""

RECEIVED_BYTES_MAX: Final = 1 * MIB
"""Bytes that the kernel is asked for when so many more of a frame are known to come."""

SOCKET_BYTES: Final = 512 * KIB
"""Room that the kernel is asked for, for what is sent and not received yet: a block of a reader
goes in a few pieces instead of ten, 60 MiB to a follower in 55 ms instead of 85. It gives what the
system allows, 208 KiB mostly."""

CALL_BYTES: Final = 16 * KIB
"""Bytes of an unfinished message that pay for one call of the kernel."""

FRAMES_OF_A_CALL_MAX: Final = 32
"""Frames of an unfinished message that cost as much as one call of the kernel."""

DEBT_MAX: Final = 256
"""Calls of the kernel that bring no end of a message before a connection is set aside: twice as
many as the largest batch needs."""

ASIDE_S: Final = 0.005
"""How often one of the connections that are set aside is looked at."""

ASIDE_BYTES: Final = 4 * KIB
"""Bytes that are taken in at such a look: as frames of one byte that is 1 ms of work."""

PIECES_MAX: Final = 512
"""Pieces of a frame before they are put together: the largest record comes in 256 of 64 KiB."""

SEND_QUEUE_BYTES: Final = 2 * PEER_LOANS_BYTES_MAX
"""Bytes that wait for one client before it loses the next message: what it asks for while it takes
nothing is `busy` at half of it, but refusals and acks are not, and 4096 of those were 0.5 GiB."""

CONNECTIONS_WAITING_MAX: Final = 1024
"""Connections that wait while the daemon is busy; the kernel refuses more, and they come again."""
