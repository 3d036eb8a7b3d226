"""What a consumer's configuration says, and what it becomes before librdkafka sees it."""

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaException

from kclient_quota.clients.consumer.core import ConsumerCore
from kclient_quota.clients.consumer.receiving.poll_idle import PollIdle
from kclient_quota.clients.heartbeat import DEFAULT_MAX_POLL_INTERVAL_MS
from kclient_quota.clients.limits import Limit
from kclient_quota.clients.wait_time import WaitTime
from kclient_quota.clock import Clock
from kclient_quota.config import LimitSource, as_read, whole_number
from kclient_quota.metrics import CONSUMER, MetricName

STORE_KEY: Final = "enable.auto.offset.store"
STORE_EVERY_MS: Final = 1_000
LEAST_STORE_MS: Final = 100
NO_LIMIT: Final = Limit(None, None, LimitSource.CONFIG)
"""What applies to a client that is not to be paced: by its own word, nothing."""


def store_every_ms(conf: Mapping[str, Any]) -> int:
    """How often to store what has been received: twice as often as it is committed, where that is often."""
    interval_ms = whole_number(conf, ["auto.commit.interval.ms"], 2 * STORE_EVERY_MS)
    return min(STORE_EVERY_MS, max(LEAST_STORE_MS, interval_ms // 2))


def max_poll_interval_ms(conf: Mapping[str, Any]) -> int:
    """Kafka's `max.poll.interval.ms`; the default where it is none, which is for librdkafka to refuse."""
    return whole_number(conf, ["max.poll.interval.ms"], DEFAULT_MAX_POLL_INTERVAL_MS)


def without_an_empty_group(conf: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration whose empty `group.id` is as good as none, which confluent_kafka refuses.

    One that librdkafka reads as empty, it does not: an assertion of its own ends the process.

    Raises:
        UnicodeEncodeError: the group has a name that is no UTF-8; the same becomes of that.
    """
    if as_read(conf, "group.id").encode():
        return dict(conf)
    return {key: value for key, value in conf.items() if key != "group.id"}


def what_went_wrong(error: SystemError) -> BaseException:
    """The exception behind confluent_kafka's "returned a result with an exception set".

    A constructor that fails serves callbacks once more while its exception is set already, which Python takes for a
    fault of theirs.
    """
    cause: BaseException = error
    while not isinstance(cause, KafkaException) and cause.__cause__ is not None:
        cause = cause.__cause__
    return cause


def metrics(
    core: ConsumerCore, idle: PollIdle, waited: WaitTime, client_id: str, clock: Clock
) -> dict[MetricName, float]:
    """All that a consumer counts by itself; does not keep the consumer alive."""
    now_ms = clock.now_ms()
    return {**core.metrics(now_ms), **idle.metrics(client_id, now_ms), **waited.metrics(CONSUMER, client_id)}
