"""Who is connected: names, subscriptions, and what each peer did not read."""

from dataclasses import dataclass, field

from steno_protocol.replies import ClientEntry
from stenod.feed import Feed, Subscriber


@dataclass(slots=True)
class Subscription:
    """One subscription of a peer: where it is fed from."""

    session: str
    feed: Feed
    subscriber: Subscriber


@dataclass(slots=True, eq=False)
class Peer:
    """One connection.

    Attributes:
        identity: what the socket calls it.
        since_s: monotonic time of its first message.
        user: the public key of a client on another machine; None for one on this machine.
        dropped: messages that it was too slow, or gone, to get.
        looking: ids of its requests for which files are being looked at.
    """

    identity: bytes
    since_s: float
    user: str | None = None
    name: str | None = None
    pid: int | None = None
    requests: int = 0
    dropped: int = 0
    looking: set[bytes] = field(default_factory=set[bytes])
    subscriptions: dict[str, Subscription] = field(default_factory=dict[str, Subscription])

    def unsubscribe(self, name: str) -> bool:
        """End one subscription; False if there is none of this name."""
        subscription = self.subscriptions.pop(name, None)
        if subscription is None:
            return False
        subscription.feed.remove(subscription.subscriber)
        return True

    def unsubscribe_all(self) -> None:
        """End all subscriptions: the peer is gone."""
        for name in list(self.subscriptions):
            self.unsubscribe(name)

    def entry(self, now_s: float) -> ClientEntry:
        """What others are told of this peer."""
        return ClientEntry(
            name=self.name,
            pid=self.pid,
            connected_s=round(now_s - self.since_s, 3),
            requests=self.requests,
            dropped=self.dropped,
            subscriptions=sorted({item.session for item in self.subscriptions.values()}),
        )
