"""`send_offsets_to_transaction()` while a group has no coordinator: librdkafka forgets the time that it was given."""

import gc
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.request.controls import Intercepted
from kclient_quota.clients.producer import Producer
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import FindCoordinatorResponse
from tests.integration.made_producers import made

pytestmark = pytest.mark.usefixtures("only_what_is_new")

OFFSETS = [TopicPartition("orders", 0, 1)]
AGES_S = 60


@pytest.fixture
def cluster() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(brokers=3, topics={"orders": 3}) as cluster:
        yield cluster


def begun(
    cluster: EmbeddedBroker, conf: dict[str, Any], *, leader: int, make: Callable[[Any], Producer] = made
) -> Producer:
    """A producer with a transaction open, and a message in it that this broker leads the partition of."""
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "t", "max.block.ms": 500, **conf}
    producer = make(conf)
    producer.init_transactions(AGES_S)
    producer.begin_transaction()
    producer.produce("orders", b"v", partition=leader - 1)
    assert producer.flush(AGES_S) == 0
    return producer


def no_group_has_one(seen: Intercepted) -> FindCoordinatorResponse | None:
    request: Any = seen.request
    if request.key_type:
        return None
    return FindCoordinatorResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, node_id=-1, host="", port=-1)


def test_the_call_ends_in_time_and_the_transaction_can_be_aborted(cluster: EmbeddedBroker, group: Any) -> None:
    cluster.control("FindCoordinator", no_group_has_one, times=None)
    producer = begun(cluster, {"connections.max.idle.ms": 1_500}, leader=2)
    with pytest.raises(KafkaException, match="did not answer in time") as late:
        producer.send_offsets_to_transaction(OFFSETS, group, 1)
    assert late.value.args[0].txn_requires_abort()
    with pytest.raises(KafkaException, match="still does not answer") as busy:
        producer.abort_transaction(0)
    assert busy.value.args[0].retriable()
    with pytest.raises(KafkaException) as another:
        producer.send_offsets_to_transaction(OFFSETS, group, 1)
    assert another.value.args[0].code() == KafkaError._PREV_IN_PROGRESS
    cluster.clear_controls()
    producer.abort_transaction(AGES_S)
    producer.begin_transaction()
    producer.produce("orders", b"v", partition=1)
    producer.send_offsets_to_transaction(OFFSETS, group, AGES_S)
    producer.commit_transaction(AGES_S)


def test_the_heartbeat_goes_on_meanwhile_and_closing_does_not_wait_for_it(cluster: EmbeddedBroker, group: Any) -> None:
    cluster.control("FindCoordinator", no_group_has_one, times=None)
    beats: list[float] = []
    producer = begun(cluster, {"transaction.timeout.ms": 8_000}, leader=2, make=Producer)
    producer._kq_heartbeat = lambda: beats.append(time.monotonic())
    with pytest.raises(KafkaException, match="did not answer in time"):
        producer.send_offsets_to_transaction(OFFSETS, group)
    assert beats[-1] - beats[0] > 3
    assert not producer.close()
    cluster.clear_controls()
    # The call that librdkafka forgot the time of ends now, and the client's last threads with the object.
    gone = weakref.ref(producer)
    del producer
    deadline = time.monotonic() + AGES_S
    while gone() is not None and time.monotonic() < deadline:
        time.sleep(1)
        gc.collect()  # looks at all that this process has, eleven thousand tests included
    assert gone() is None


def test_a_coordinator_that_has_left_the_cluster_is_looked_for_anew(cluster: EmbeddedBroker, group: Any) -> None:
    """As soon as a connection is closed for want of use; with librdkafka's own defaults none ever is."""
    producer = begun(cluster, {"connections.max.idle.ms": 1_500}, leader=2)
    producer.send_offsets_to_transaction(OFFSETS, group, AGES_S)
    producer.commit_transaction(AGES_S)
    cluster.stop_broker(1)
    deadline = time.monotonic() + AGES_S
    while 1 in producer.list_topics(timeout=AGES_S).brokers and time.monotonic() < deadline:
        time.sleep(0.05)
    producer.begin_transaction()
    producer.produce("orders", b"v", partition=1)
    producer.send_offsets_to_transaction(OFFSETS, group, AGES_S)
    producer.commit_transaction(AGES_S)
