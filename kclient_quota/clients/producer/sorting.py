"""What the application says of each message: its lane, its tenant, and how long it is worth sending."""

import math
from collections.abc import Hashable, Mapping
from typing import Any, Final

from kclient_quota.clients.calls import encoded
from kclient_quota.clients.interceptor import ProducerRecord
from kclient_quota.config import Backoff, QuotaConfig
from kclient_quota.errors import ConfigError
from kclient_quota.pacing.sending.lanes import DEFAULT_LANE, NO_TENANT, Full, Lane, lanes_of
from kclient_quota.pacing.sending.turns import Waiting

Place = tuple[str, Hashable]
"""A lane's name and a tenant."""
NO_PLACE: Final[Place] = (DEFAULT_LANE, None)


class Sorting:
    """Sorts one producer's messages, by its configuration.

    Attributes:
        lanes: the lanes in their order; the one of messages without a lane is always among them.
        waits_apart: whether who is refused waits all the same, and offers the message again.

    Raises:
        ConfigError: `quota.lanes` cannot be understood.
    """

    def __init__(self, ours: QuotaConfig) -> None:
        self.waits_apart = False
        full = Full.RAISE if ours.backoff is Backoff.RAISE else Full.BLOCK
        lanes = {lane.name: lane for lane in lanes_of(ours.lanes, full)}
        lanes.setdefault(DEFAULT_LANE, Lane(full=full))
        self._by_name = lanes
        self.lanes = tuple(lanes.values())
        self._of = ours.lane_of
        self._tenant_of = ours.tenant_of
        self._deadline = ours.message_deadline_ms
        self._is_default = self._of is None and self._tenant_of is None and self._deadline is None
        self._is_plain = self._is_default and lanes[DEFAULT_LANE] == Lane(full=full)

    def sort(self, message: Waiting) -> Lane:
        """Say of a message where and for how long it waits; returns its lane.

        Raises:
            ConfigError: the application's function names a lane that there is not, or no number.
            Exception: whatever its functions raise.
        """
        if self._is_plain:
            return self._by_name[DEFAULT_LANE]
        handed = message.payload
        record = ProducerRecord(
            message.topic, handed.value, handed.key, message.partition, handed.timestamp, handed.headers
        )
        message.lane, message.tenant = self.place_of(record)
        lane = self._by_name[message.lane]
        worth_ms = self._worth_ms(lane, record)
        if worth_ms is not None and message.expires_at_ms is not None:
            message.expires_at_ms = min(message.expires_at_ms, message.queued_at_ms + worth_ms)
        if lane.newest:
            message.key = encoded(handed.key)
        return lane

    @property
    def patience_ms(self) -> float:
        """How long a message may be kept waiting: not at all where there may be none, or where nobody knows."""
        refuses = any(lane.drops or (lane.raises and not self.waits_apart) for lane in self.lanes)
        if refuses or callable(self._deadline):
            return 0.0
        worth = [self._deadline, *(lane.deadline_ms for lane in self.lanes)]
        return min((each for each in worth if each is not None), default=math.inf)

    @property
    def has_places(self) -> bool:
        """Whether not all messages are of one lane and tenant."""
        return self._of is not None or self._tenant_of is not None

    def place_of(self, record: ProducerRecord) -> Place:
        """A message's lane and tenant.

        Raises:
            ConfigError: as `sort`.
            TypeError: the tenant cannot be hashed.
        """
        lane = self._lane_of(record)
        if self._tenant_of is None:
            return lane, None
        tenant = self._tenant_of(record)
        hash(tenant)  # what is not hashable is an error here, not in the sender
        # Those of nobody in particular are one tenant among others, who takes nothing from them.
        return lane, NO_TENANT if tenant is None else tenant

    def _lane_of(self, record: ProducerRecord) -> str:
        of = self._of
        if of is None:
            return DEFAULT_LANE
        if isinstance(of, Mapping):
            return of.get(record.topic, DEFAULT_LANE)
        if isinstance(of, str):
            name = _header(record.headers, of)
            return name if name in self._by_name else DEFAULT_LANE
        found = of(record)
        if found is None:
            return DEFAULT_LANE
        if found not in self._by_name:
            known = ", ".join(name for name in self._by_name if name)
            raise ConfigError(
                f"quota.lane.of says lane {found!r}, and quota.lanes has {known}: add it there, or return None"
            )
        return found

    def _worth_ms(self, lane: Lane, record: ProducerRecord) -> int | None:
        """How long a message is worth sending: as its lane says, where that does, or the producer."""
        if lane.deadline_ms is not None or self._deadline is None or isinstance(self._deadline, int):
            return self._deadline if lane.deadline_ms is None else lane.deadline_ms  # type: ignore[return-value]
        found: Any = self._deadline(record)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, (int, float)) or math.isnan(found):
            raise ConfigError(f"quota.message.deadline.ms says {found!r}: return a number of milliseconds, or None")
        return int(min(max(found, 0), 1 << 40))


def _header(headers: Any, name: str) -> str | None:
    """The text of the last header of that name, as Kafka's `lastHeader`."""
    pairs = list(headers.items()) if isinstance(headers, dict) else headers or []
    for each, value in reversed(pairs):
        if each == name:
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return None
