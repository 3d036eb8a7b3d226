"""A rebalance that came after the last poll: close() serves it while the consumer is still in its group.

librdkafka's own close leaves the group first. If the broker answers in the moment in which a callback ends, nobody
answers its `assign()`, and the process waits for ever. That moment cannot be met at will; what comes first can be seen.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kclient_quota import Consumer
from kclient_quota.broker import EmbeddedBroker
from tests.integration.group_members import until

HEARTBEAT, LEAVE_GROUP = 12, 13


def _asked(broker: EmbeddedBroker, api_key: int) -> bool:
    return any(seen.api_key == api_key for seen in broker.requests)


def _unserved(broker: EmbeddedBroker, assigned: Any, **conf: Any) -> Consumer:
    given = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "log_level": 0}
    consumer = Consumer({**given, "heartbeat.interval.ms": 50, **conf})
    consumer.subscribe(["orders"], on_assign=assigned)
    # Who sends heartbeats has been told of its partitions.
    until(lambda _: _asked(broker, HEARTBEAT))
    return consumer


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_rebalance_is_served_before_the_group_is_left(strategy: str) -> None:
    left: list[bool] = []
    with EmbeddedBroker(topics={"orders": 2}) as broker:

        def assigned(*_: Any) -> None:
            deadline = time.monotonic() + 0.5
            while not _asked(broker, LEAVE_GROUP) and time.monotonic() < deadline:
                time.sleep(0.01)
            left.append(_asked(broker, LEAVE_GROUP))

        _unserved(broker, assigned, **{"partition.assignment.strategy": strategy}).close()
        assert left == [False]
        assert _asked(broker, LEAVE_GROUP)


def test_what_a_callback_raises_then_is_raised_when_all_is_closed() -> None:
    def assigned(*_: Any) -> None:
        raise LookupError("no shard")

    with EmbeddedBroker(topics={"orders": 2}) as broker:
        consumer = _unserved(broker, assigned)
        with pytest.raises(LookupError, match="no shard"):
            consumer.close()
        assert _asked(broker, LEAVE_GROUP)
        consumer.close()  # as plain confluent_kafka's, which takes it for closed


def test_threads_may_close_a_consumer_at_once() -> None:
    with EmbeddedBroker(topics={"orders": 2}) as broker:
        consumer = _unserved(broker, lambda *_: None)
        with ThreadPoolExecutor(4) as threads:
            assert [closing.result() for closing in [threads.submit(consumer.close) for _ in range(4)]] == [None] * 4
