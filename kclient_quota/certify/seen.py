"""What happened in a scene: the driver's lines, the broker's requests, the log, and the bytes on the road. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from kclient_quota.broker.request.controls import SeenRequest
from kclient_quota.certify.driver import ACKNOWLEDGED, CLOSED, FAILED, RECEIVED, SAID, SENT, Event


class Sent(NamedTuple):
    """A request as it left the client, whether the broker has read it yet or not.

    Attributes:
        at_ms: when its first bytes passed.
        connection: which one, counted from 0.
        api_key: Kafka's number of the API.
    """

    at_ms: int
    connection: int
    api_key: int


@dataclass
class Seen:
    """Everything of one scene; times are milliseconds of one clock, since 1970.

    Attributes:
        started_ms: when the driver was started.
        ended_ms: when it ended, or was ended.
        told_to_stop_ms: when it was told to stop; None if it was not.
        exit_status: of the driver; None when it had to be killed.
        events: its lines, in order.
        nonsense: lines that are none.
        words: the end of its standard error.
        requests: as the broker answered them.
        sent: as they left the client.
        log: ids in each partition of the topic afterwards, in order.
        topics: names of all topics afterwards.
        second: lines of the driver that was started beside it, and `second_started_ms` when that was.
        pushes: (time, terminating, client instance id) of the telemetry pushes that were taken.
    """

    started_ms: int
    ended_ms: int
    told_to_stop_ms: int | None
    exit_status: int | None
    events: Sequence[Event]
    nonsense: Sequence[str]
    words: str
    requests: Sequence[SeenRequest]
    sent: Sequence[Sent]
    log: Sequence[Sequence[int]]
    topics: Sequence[str] = ()
    second: Sequence[Event] = ()
    second_started_ms: int | None = None
    pushes: Sequence[tuple[int, bool, str]] = field(default_factory=list)

    def ids(self, kind: str) -> Counter[int]:
        """How often each id was told of."""
        return Counter(event.id for event in self.events if event.kind == kind)

    @cached_property
    def copies(self) -> Counter[int]:
        """How often each id is in the log."""
        return Counter(number for partition in self.log for number in partition)

    @property
    def acknowledged(self) -> Counter[int]:
        """Ids that were reported as delivered."""
        return self.ids(ACKNOWLEDGED)

    @property
    def failed(self) -> Counter[int]:
        """Ids that were reported as failed."""
        return self.ids(FAILED)

    @property
    def received(self) -> Counter[int]:
        """Ids that came to the application."""
        return self.ids(RECEIVED)

    @property
    def unreported(self) -> set[int]:
        """Ids that the client took and never spoke of again."""
        return set(self.ids(SENT)) - set(self.acknowledged) - set(self.failed)

    @property
    def lost(self) -> list[int]:
        """Ids that were reported as delivered and are not in the log."""
        return sorted(number for number in self.acknowledged if number not in self.copies)

    @property
    def duplicated(self) -> int:
        """Records in the log beyond the first of an id."""
        return self.copies.total() - len(self.copies)

    @property
    def said(self) -> list[Event]:
        """What the client told its application of problems."""
        return [event for event in self.events if event.kind == SAID]

    @property
    def closed_ms(self) -> int | None:
        """When the client was closed."""
        return next((event.at_ms for event in self.events if event.kind == CLOSED), None)

    def of_api(self, api_key: int) -> list[SeenRequest]:
        """The requests of one API, oldest first."""
        return [request for request in self.requests if request.api_key == api_key]

    def longest_throttle_ms(self, api_key: int) -> int:
        """The longest throttle time that answers of one API carried."""
        return max((request.throttle_time_ms for request in self.of_api(api_key)), default=0)
