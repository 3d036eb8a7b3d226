"""Whether librdkafka waits out throttles by itself, so that we must not do so as well. Pure.

No released librdkafka does (KIP-219): it goes on sending, and the broker leaves the requests unread. A later one may.
It is recognised by two things together:

* Its version is later than the last one that is known not to. An earlier one is not looked at, which costs nothing.
* Its statistics, of at least `NEEDED` throttles, say so. A throttle counts when two events fall into it, between which
  the broker got no Produce and no Fetch request (`brokers[].req`) although there was work for it: messages in the
  queues of its partitions (`msgq_cnt`, `xmit_msgq_cnt`), or partitions that are fetched and have nothing left in their
  queue (`fetch_state`, `fetchq_cnt`), and although none was unanswered (`waitresp_cnt`), which could have held it up as
  well. One request sent in mid-throttle is proof of the contrary: all begins anew.
"""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

logger = logging.getLogger("kclient_quota")

LAST_WITHOUT: Final = 0x021000FF
"""librdkafka 2.16.0, as `confluent_kafka.libversion()` counts: the last version known not to wait."""
NEEDED: Final = 3
GRACE_MS: Final = 200
"""What was sent while the throttle was on its way to us says nothing."""

_KINDS: Final = ("Produce", "Fetch")


@dataclass(slots=True)
class _Throttle:
    """One broker's latest throttle, and its requests as the first event within it counts them."""

    began_ms: int
    ends_ms: int
    sent: int | None = None
    idle: bool = False
    counted: bool = False


class NativeThrottling:
    """Looks on.

    Args:
        version: librdkafka's, as an integer.
        stand_back: told when that is found to be so, or not to be so any more.

    Attributes:
        recognised: whether this librdkafka waits by itself.
    """

    def __init__(self, version: int, stand_back: Callable[[bool], None]) -> None:
        self._stand_back = stand_back
        self.possible = version > LAST_WITHOUT
        self.recognised = False
        self._honoured = 0
        self._throttles: dict[int, _Throttle] = {}

    def on_throttle(self, broker_id: int, throttle_ms: int, now_ms: int) -> None:
        """A broker has said to wait."""
        if not self.possible or broker_id < 0 or throttle_ms <= 0:
            return
        known = self._throttles.get(broker_id)
        if known is None or now_ms >= known.ends_ms:
            self._throttles[broker_id] = _Throttle(now_ms, now_ms + throttle_ms)
        else:
            # Answers to what was sent before: the longest holds.
            known.ends_ms = max(known.ends_ms, now_ms + throttle_ms)

    def on_statistics(self, text: str, at_ms: int) -> None:
        """Take one event, made at `at_ms`."""
        if not self.possible or not self._throttles:
            return
        before = self.recognised
        self._look(json.loads(text), at_ms)
        if self.recognised != before:
            logger.info("This librdkafka waits out throttles itself: %s", "so we do not" if self.recognised else "no")
            self._stand_back(self.recognised)

    def _look(self, statistics: Mapping[str, Any], at_ms: int) -> None:
        working = _working(statistics)
        for broker_id, (sent, unanswered) in _requests(statistics).items():
            throttle = self._throttles.get(broker_id)
            if throttle is not None and throttle.began_ms + GRACE_MS <= at_ms < throttle.ends_ms:
                self._judge(throttle, sent, idle=broker_id in working and not unanswered)

    def _judge(self, throttle: _Throttle, sent: int, *, idle: bool) -> None:
        """One event within a throttle; `idle`: nothing but the throttle keeps requests from being sent."""
        before, was_idle = throttle.sent, throttle.idle
        throttle.sent, throttle.idle = sent, idle
        if before is None:
            return
        if sent != before:
            self._honoured = 0
            self.recognised = False
        elif idle and was_idle and not throttle.counted:
            throttle.counted = True
            self._honoured += 1
            self.recognised = self._honoured >= NEEDED


def _requests(statistics: Mapping[str, Any]) -> dict[int, tuple[int, int]]:
    """By broker: Produce and Fetch requests so far, and all that are unanswered."""
    return {
        int(broker["nodeid"]): (
            sum(int(broker.get("req", {}).get(kind, 0)) for kind in _KINDS),
            int(broker.get("waitresp_cnt", 0)),
        )
        for broker in statistics.get("brokers", {}).values()
        if int(broker["nodeid"]) >= 0 and broker.get("source") != "logical"
    }


def _working(statistics: Mapping[str, Any]) -> set[int]:
    """Brokers to which there is something to send."""
    return {
        int(partition["broker"])
        for topic in statistics.get("topics", {}).values()
        for partition in topic["partitions"].values()
        if _has_work(partition)
    }


def _has_work(partition: Mapping[str, Any]) -> bool:
    if partition.get("msgq_cnt", 0) or partition.get("xmit_msgq_cnt", 0):
        return True
    return partition.get("fetch_state") == "active" and not partition.get("fetchq_cnt", 0)
