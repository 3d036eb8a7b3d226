"""Many wrapped producers in one process, each with so much to send per second, whatever its quota is.

They send as applications do that know of no quota: `quota.backoff` is off, and a reading that finds the queue full is
thrown away. So their throttle times, which they push, tell what they lack.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from kclient_quota.clients.producer import Producer
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.metrics import MetricName

TICK_MS: Final = 250
TELL_MS: Final = 500
BACKLOG_S: Final = 2
"""How much a member keeps for later."""
_MOST_LATE_MS: Final = 1_000
_CONF: Final[Mapping[str, Any]] = {"quota.backoff": "off", "linger.ms": 100, "statistics.interval.ms": 1_000}


@dataclass(frozen=True, slots=True)
class Member:
    """A producer of a fleet.

    Attributes:
        client_id: its name.
        bytes_per_second: what it has to send.
    """

    client_id: str
    bytes_per_second: int


@dataclass(frozen=True, slots=True)
class Told:
    """What a member has come to so far.

    Attributes:
        sent: readings handed to librdkafka.
        dropped: readings for which its queue had no room.
        throttle_ms: throttle times that brokers answered with, added up.
    """

    sent: int = 0
    dropped: int = 0
    throttle_ms: float = 0.0

    def since(self, before: "Told") -> "Told":
        """What has come on top of `before`."""
        return Told(self.sent - before.sent, self.dropped - before.dropped, self.throttle_ms - before.throttle_ms)


@dataclass(frozen=True, slots=True)
class Moment:
    """All members at one time.

    Attributes:
        at_ms: of the system's clock.
        told: what each has come to, by client-id.
    """

    at_ms: int
    told: Mapping[str, Told]

    def since(self, before: "Moment") -> dict[str, Told]:
        """What each has done since then."""
        return {name: told.since(before.told[name]) for name, told in self.told.items()}


class Fleet:
    """Producers that send from one thread, for as long as the context lasts.

    Args:
        bootstrap_servers: the cluster.
        topic: where all of them send to; is there already.
        members: who they are.

    Attributes:
        members: as given.
        history: a moment every half second, the first before anything was sent.
    """

    def __init__(self, bootstrap_servers: str, topic: str, members: Sequence[Member]) -> None:
        self.members = tuple(members)
        self._conf = {"bootstrap.servers": bootstrap_servers, **_CONF}
        self._topic = topic
        self.history = [Moment(SYSTEM_CLOCK.now_ms(), {member.client_id: Told() for member in members})]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-fleet", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        senders = [_Sender(member, self._conf, self._topic) for member in self.members]
        next_told_ms = self.history[0].at_ms + TELL_MS
        while not self._ended.wait(TICK_MS / 1000):
            now_ms = SYSTEM_CLOCK.now_ms()
            for sender in senders:
                sender.send(now_ms)
            if now_ms >= next_told_ms:
                next_told_ms = now_ms + TELL_MS
                self.history.append(Moment(now_ms, {sender.member.client_id: sender.told() for sender in senders}))
        for sender in senders:
            sender.close()


class _Sender:
    def __init__(self, member: Member, conf: Mapping[str, Any], topic: str) -> None:
        self.member = member
        self._topic = topic
        self._reading = b"." * (member.bytes_per_second * TICK_MS // 1000)
        self._next_ms = SYSTEM_CLOCK.now_ms()
        self._sent = self._dropped = 0
        backlog = {"queue.buffering.max.messages": BACKLOG_S * 1000 // TICK_MS}
        self._producer = Producer({**conf, **backlog, "client.id": member.client_id})
        self._throttle = MetricName(
            "produce-throttle-time-total", "producer-metrics", (("client-id", member.client_id),)
        )

    def send(self, now_ms: int) -> None:
        """Send the readings that are due; one that is more than a second late was never taken."""
        self._next_ms = max(self._next_ms, now_ms - _MOST_LATE_MS)
        while self._next_ms <= now_ms:
            self._next_ms += TICK_MS
            try:
                self._producer.produce(self._topic, self._reading)
                self._sent += 1
            except BufferError:
                self._dropped += 1
        self._producer.poll(0)

    def told(self) -> Told:
        return Told(self._sent, self._dropped, self._producer.metrics().get(self._throttle, 0.0))

    def close(self) -> None:
        self._producer.purge()
        self._producer.close()
