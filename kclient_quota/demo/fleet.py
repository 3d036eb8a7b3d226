"""Many wrapped producers in one process, each with so much to send per second, whatever its quota is.

They are configured as anybody's are, that is, they wait where their quota wants it. A reading comes every quarter of a
second; one that a producer could not take within a second, as it still waited with an earlier one, is thrown away. The
time waited, which they push, tells what they lack.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from kclient_quota.clients.producer import Producer
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.metrics import MetricName

TICK_MS: Final = 250
TELL_MS: Final = 500
LACKS: Final = 0.05
"""Who waits for a larger part of the time than this lacks quota."""
LEAST_MS: Final = 100
"""And waits for longer than this, since every wait takes a little longer than it has to."""
_MOST_LATE_MS: Final = 1_000


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
        sent: readings that its producer has taken.
        dropped: readings that came while it could not take any.
        throttle_ms: throttle times that brokers answered with, added up.
        wait_ms: that it has waited for its quota.
    """

    sent: int = 0
    dropped: int = 0
    throttle_ms: float = 0.0
    wait_ms: float = 0.0

    def since(self, before: "Told") -> "Told":
        """What has come on top of `before`."""
        return Told(
            self.sent - before.sent,
            self.dropped - before.dropped,
            self.throttle_ms - before.throttle_ms,
            self.wait_ms - before.wait_ms,
        )

    @property
    def lack_ms(self) -> float:
        """Time in which it was told to wait, or waited by itself."""
        return max(self.throttle_ms, self.wait_ms)


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

    def lacking(self, before: "Moment") -> set[str]:
        """Who has been throttled or has waited since then for more than a twentieth of the time."""
        most_ms = max((self.at_ms - before.at_ms) * LACKS, LEAST_MS)
        return {name for name, told in self.since(before).items() if told.lack_ms > most_ms}


class Fleet:
    """Producers that send, each from a thread of its own, for as long as the context lasts.

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
        self.history = [Moment(SYSTEM_CLOCK.now_ms(), {member.client_id: Told() for member in members})]
        self._ended = threading.Event()
        self._senders = [_Sender(member, bootstrap_servers, topic, self._ended) for member in self.members]
        self._threads = [threading.Thread(target=each.run, name="demo-sender", daemon=True) for each in self._senders]
        self._threads.append(threading.Thread(target=self._look, name="demo-fleet", daemon=True))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _look(self) -> None:
        while not self._ended.wait(TELL_MS / 1000):
            told = {sender.member.client_id: sender.told for sender in self._senders}
            self.history.append(Moment(SYSTEM_CLOCK.now_ms(), told))


class _Sender:
    def __init__(self, member: Member, bootstrap_servers: str, topic: str, ended: threading.Event) -> None:
        self.member = member
        self.told = Told()
        self._conf = {"bootstrap.servers": bootstrap_servers, "client.id": member.client_id}
        self._topic = topic
        self._ended = ended
        self._reading = b"." * (member.bytes_per_second * TICK_MS // 1000)
        tags = (("client-id", member.client_id),)
        self._throttle = MetricName("produce-throttle-time-total", "producer-metrics", tags)
        self._wait = MetricName("quota-wait-time-total", "producer-metrics", tags)

    def run(self) -> None:
        """Send a reading whenever one is due."""
        producer = Producer(self._conf)
        sent = dropped = 0
        next_ms = SYSTEM_CLOCK.now_ms()
        while not self._ended.wait(max(next_ms - SYSTEM_CLOCK.now_ms(), 0) / 1000):
            producer.produce(self._topic, self._reading)
            producer.poll(0)
            sent += 1
            next_ms += TICK_MS
            late = (SYSTEM_CLOCK.now_ms() - next_ms - _MOST_LATE_MS) // TICK_MS
            if late > 0:
                dropped += late
                next_ms += late * TICK_MS
            found = producer.metrics()
            self.told = Told(sent, dropped, found.get(self._throttle, 0.0), found.get(self._wait, 0.0))
        producer.purge()
        producer.close()
