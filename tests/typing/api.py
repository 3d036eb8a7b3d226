"""Read by mypy, never run: every door of confluent_kafka's clients, used through ours with the types of the plain ones.

A signature that differed from confluent_kafka's would be an error here or, as an incompatible override, in the class.
"""

from collections.abc import Callable
from typing import Any, assert_type

import confluent_kafka
from confluent_kafka import Message, TopicPartition

from kclient_quota import (
    Consumer,
    ConsumerInterceptor,
    MetricName,
    Producer,
    ProducerInterceptor,
    QuotaThrottledError,
    ShareConsumer,
)

# Whoever takes a plain client takes ours.
make_producer: Callable[[dict[str, Any]], confluent_kafka.Producer] = Producer
make_consumer: Callable[[dict[str, Any]], confluent_kafka.Consumer] = Consumer


# An application's own end of a `with` block has the type of confluent_kafka's.
class ProducerThatEnds(Producer):
    def __exit__(self, exc_type: object, exc_value: object, exc_traceback: object) -> bool | None: ...


class ConsumerThatEnds(Consumer):
    def __exit__(self, exc_type: object, exc_value: object, exc_traceback: object) -> bool | None: ...


class ShareConsumerThatEnds(ShareConsumer):
    def __exit__(self, exc_type: object, exc_value: object, exc_traceback: object) -> bool | None: ...


def producer_doors(producer: Producer, consumer: Consumer, report: Callable[..., None]) -> None:
    assert_type(producer.produce("t", b"v", "k", 0, report, None, 0, {"h": b"v"}), None)
    producer.produce(
        topic="t", value="v", key=b"k", partition=-1, on_delivery=report, timestamp=1, headers=[("h", b"")]
    )
    assert_type(producer.produce_batch("t", [{"value": b"v"}], partition=0, on_delivery=report), int)
    assert_type(producer.poll(0.1), int)
    assert_type(producer.flush(1.0), int)
    assert_type(producer.purge(in_queue=True, in_flight=True, blocking=False), None)
    assert_type(producer.init_transactions(1.0), None)
    assert_type(producer.begin_transaction(), None)
    producer.send_offsets_to_transaction([TopicPartition("t", 0, 1)], consumer.consumer_group_metadata(), 1.0)
    assert_type(producer.commit_transaction(1.0), None)
    assert_type(producer.abort_transaction(1.0), None)
    producer.list_topics("t", timeout=1.0)
    assert_type(producer.cluster_id(1.0), str)
    assert_type(producer.set_sasl_credentials("u", "p"), None)
    assert_type(producer.close(), bool)
    assert_type(len(producer), int)
    with Producer({"client.id": "c"}, heartbeat=consumer) as entered:
        assert_type(entered, Producer)
    assert_type(producer.metrics(), dict[MetricName, float])
    for broker_id in producer.quota_state():
        assert_type(broker_id, int)


def consumer_doors(consumer: Consumer, parts: list[TopicPartition], message: Message) -> None:
    def on_rebalance(_consumer: confluent_kafka.Consumer, _partitions: list[TopicPartition]) -> None: ...

    consumer.subscribe(["t"], on_assign=on_rebalance, on_revoke=on_rebalance, on_lost=on_rebalance)
    consumer.unsubscribe()
    assert_type(consumer.poll(1.0), Message | None)
    assert_type(consumer.consume(10, 1.0), list[Message])
    consumer.assign(parts)
    consumer.incremental_assign(parts)
    consumer.incremental_unassign(parts)
    consumer.unassign()
    assert_type(consumer.assignment(), list[TopicPartition])
    consumer.store_offsets(message=message)
    consumer.store_offsets(offsets=parts)
    assert_type(consumer.commit(asynchronous=True), None)
    assert_type(consumer.commit(message=message, asynchronous=False), list[TopicPartition])
    assert_type(consumer.commit(offsets=parts, asynchronous=False), list[TopicPartition])
    assert_type(consumer.committed(parts, 1.0), list[TopicPartition])
    assert_type(consumer.position(parts), list[TopicPartition])
    assert_type(consumer.get_watermark_offsets(parts[0], timeout=1.0, cached=True), tuple[int, int])
    consumer.offsets_for_times(parts, timeout=1.0)
    consumer.pause(parts)
    consumer.resume(parts)
    consumer.seek(parts[0])
    consumer.memberid()
    consumer.consumer_group_metadata()
    consumer.list_topics("t", timeout=1.0)
    assert_type(consumer.cluster_id(1.0), str)
    consumer.set_sasl_credentials("u", "p")
    consumer.close()
    with Consumer({"group.id": "g"}) as entered:
        assert_type(entered, Consumer)
    assert_type(consumer.metrics(), dict[MetricName, float])
    assert_type(consumer.keep_alive(), None)


def extras(error: QuotaThrottledError) -> None:
    assert_type(error.retry_after_ms, int)
    assert_type(error.broker_id, int | None)
    as_buffer_error: BufferError = error
    del as_buffer_error
    producer_chain: list[ProducerInterceptor] = []
    consumer_chain: list[ConsumerInterceptor] = []
    del producer_chain, consumer_chain
