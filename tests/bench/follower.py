"""Followers: `python -m bench.follower ENDPOINT SESSION FOLLOWERS LINES [PACE_MS]`.

One process. It says `live` when all of them are, and in the end the line behind each event with the
monotonic time at which it came.
"""

import sys
import time

import msgspec
import zmq

from steno_protocol.commands import Subscribe
from steno_protocol.events import Live, Records
from steno_protocol.messages import decode_answers, encode_request
from steno_protocol.positions import Position


def main() -> None:
    """Follow until every follower has seen all lines."""
    endpoint, session, followers, lines, *pace_ms = sys.argv[1:]
    context = zmq.Context()
    sockets = [context.socket(zmq.DEALER) for _ in range(int(followers))]
    poller = zmq.Poller()
    for socket in sockets:
        socket.connect(endpoint)
        command = Subscribe(
            session=session, subscription="bench", after="now", pace_ms=int(*pace_ms)
        )
        socket.send_multipart(encode_request(b"f", command, ()))
        poller.register(socket, zmq.POLLIN)
    seen: list[tuple[int, float]] = []
    live = ended = 0
    while ended < len(sockets):
        for socket, _ in poller.poll():
            for answer in decode_answers(socket.recv_multipart()):
                if isinstance(answer.body, Live):
                    live += 1
                    if live == len(sockets):
                        print("live", flush=True)
                elif isinstance(answer.body, Records):
                    first, last = map(Position.parse, (answer.body.first, answer.body.next))
                    now = time.monotonic()
                    seen += [(line + 1, now) for line in range(first.line, last.line)]
                    ended += last.line == int(lines)
    print(msgspec.json.encode(seen).decode(), flush=True)
    for socket in sockets:
        socket.close(linger=0)
    context.term()


if __name__ == "__main__":
    main()
