"""What befalls a batch between librdkafka's queue and the application: signals, callbacks, changes of sizes, seeks.

A callback is called right after the batch that librdkafka would have called it in, and a signal ends the call in which
it was being taken; each message is received once, and what is told of positions is what has been received.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition, cimpl

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.consumer import Consumer
from kclient_quota.clients.consumer.consumer import _on_gone
from kclient_quota.clients.consumer.receiving import receiving
from kclient_quota.clients.consumer.receiving.held import ReceivedOffsets
from kclient_quota.clients.heartbeat import Beat
from kclient_quota.pacing.fetching.fetch_sizes import FetchSizes
from tests.signals import Stop

EACH = 200
NEAR = FetchSizes(5_000, 20_000)
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker(topics={"orders": 2}) as broker:
        filler = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 20})
        for number in range(2 * EACH):
            filler.produce("orders", b"x" * 100, partition=number % 2)
        assert filler.flush(60) == 0
        yield broker.bootstrap_servers


class Reader:
    """A consumer and the offsets that it has received."""

    count = 0

    def __init__(self, servers: str, **conf: Any) -> None:
        Reader.count += 1
        self.group = f"g{Reader.count}"
        self.consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.metrics.push": False,
                "consumer_byte_rate": 50_000_000,
                **conf,
            }
        )
        self.seen: dict[int, list[int]] = {0: [], 1: []}

    def take(self, messages: list[confluent_kafka.Message]) -> None:
        for message in messages:
            assert message.error() is None
            self.seen[message.partition() or 0].append(message.offset() or 0)

    def poll(self) -> None:
        message = self.consumer.poll(0.1)
        self.take([] if message is None else [message])

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end, self.seen
            self.poll()

    def ended_by_a_signal(self) -> None:
        """Take a batch that the application never gets."""
        pull, pull_one, lost = self.consumer._kq_pull, self.consumer._kq_pull_one, []

        def pulled(count: int, timeout_s: float) -> list[confluent_kafka.Message]:
            lost.extend(pull(count, timeout_s))
            raise Stop

        def pulled_one(timeout_s: float) -> None:
            lost.extend(filter(None, [pull_one(timeout_s)]))
            raise Stop

        self.consumer._kq_pull = pulled  # type: ignore[method-assign]
        self.consumer._kq_pull_one = pulled_one  # type: ignore[method-assign,assignment]
        end = time.monotonic() + 60
        while not lost:
            assert time.monotonic() < end
            with pytest.raises(Stop):
                self.consumer.consume(20, 0.5)
        self.consumer._kq_pull = pull  # type: ignore[method-assign]
        self.consumer._kq_pull_one = pull_one  # type: ignore[method-assign]

    def then(self, call: Callable[[], Any]) -> list[bool]:
        """Have librdkafka's next batch followed by this callback."""
        pull, done = self.consumer._kq_pull, []

        def pulled(count: int, timeout_s: float) -> list[confluent_kafka.Message]:
            messages = pull(count, timeout_s)
            if messages:
                self.consumer._kq_pull = pull  # type: ignore[method-assign]
                self.consumer._kq_listener.call_back(call)
                done.append(True)
            return messages

        self.consumer._kq_pull = pulled  # type: ignore[method-assign]
        return done

    def lose(self, part: TopicPartition) -> None:
        """The group takes it away; the application commits what it has, as many do."""
        _on_gone(lambda consumer, _: _commit(consumer), self.consumer, [part])
        cimpl.Consumer.incremental_unassign(self.consumer, [part])

    def regain(self, part: TopicPartition) -> None:
        """The group gives it back, to be read on from what is committed."""
        cimpl.Consumer.incremental_assign(self.consumer, [part])


def _commit(consumer: Consumer) -> None:
    try:
        consumer.commit(asynchronous=False)
    except confluent_kafka.KafkaException as error:
        assert error.args[0].code() == confluent_kafka.KafkaError._NO_OFFSET  # noqa: PT017


@pytest.fixture
def reader(servers: str) -> Iterator[Reader]:
    made = Reader(servers)
    yield made
    made.consumer.close()


def committed_before(servers: str, group: str, offsets: list[int]) -> None:
    plain = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    plain.commit(
        offsets=[TopicPartition("orders", number, at) for number, at in enumerate(offsets)], asynchronous=False
    )
    plain.close()


def test_a_signal_before_anything_came_of_a_partition(servers: str, reader: Reader) -> None:
    committed_before(servers, reader.group, [0, EACH])
    reader.consumer.assign([FIRST, SECOND])
    reader.ended_by_a_signal()
    reader.until(lambda: len(reader.seen[0]) >= EACH)
    reader.poll()
    assert reader.seen == {0: list(range(EACH)), 1: []}


def test_a_signal_after_a_seek(reader: Reader) -> None:
    reader.consumer.assign([TopicPartition("orders", 0, 0)])
    while len(reader.seen[0]) < 60:
        reader.take(reader.consumer.consume(20, 1))
    reader.consumer.seek(TopicPartition("orders", 0, 10))
    reader.seen[0] = list(range(10))
    reader.ended_by_a_signal()
    reader.until(lambda: len(reader.seen[0]) >= EACH)
    assert reader.seen[0] == list(range(EACH))


def test_a_signal_in_what_was_begun_at_its_beginning(servers: str, reader: Reader) -> None:
    committed_before(servers, reader.group, [150, 150])
    reader.consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
    reader.ended_by_a_signal()
    reader.until(lambda: len(reader.seen[0]) >= EACH)
    assert reader.seen[0] == list(range(EACH))


@pytest.mark.parametrize("how", ["poll", "consume"])
def test_a_signal_after_another_partition_has_gone(reader: Reader, how: str) -> None:
    consumer = reader.consumer
    consumer._kq_reads_ahead = False
    consumer.incremental_assign([TopicPartition("orders", 0, 0)])
    reader.until(lambda: len(reader.seen[0]) >= 30)
    if how == "consume":
        reader.take(consumer.consume(40, 5))
    consumer.incremental_assign([TopicPartition("orders", 1, 0)])
    reader.lose(SECOND)
    reader.ended_by_a_signal()
    reader.until(lambda: len(reader.seen[0]) >= EACH)
    assert reader.seen == {0: list(range(EACH)), 1: []}


def test_a_signal_after_a_partition_has_come_back_from_another_member(servers: str, reader: Reader) -> None:
    consumer = reader.consumer
    consumer.incremental_assign([TopicPartition("orders", 0, 0)])
    while len(reader.seen[0]) < 30:
        reader.take(consumer.consume(10, 1))
    reader.lose(FIRST)
    assert [part.offset for part in consumer.committed([FIRST], 60)] == [len(reader.seen[0])]
    committed_before(servers, reader.group, [100])
    reader.regain(FIRST)
    reader.seen[0] = list(range(100))
    reader.ended_by_a_signal()
    reader.until(lambda: len(reader.seen[0]) >= EACH)
    assert reader.seen[0] == list(range(EACH))


def test_sizes_that_change_while_an_application_works_on_a_batch(reader: Reader) -> None:
    consumer = reader.consumer
    consumer.assign([TopicPartition("orders", 0, 0), TopicPartition("orders", 1, 0)])
    while min(map(len, reader.seen.values())) < EACH:
        reader.take(consumer.consume(50, 1))
    consumer._kq_core.other_sizes = lambda now_ms: NEAR  # type: ignore[method-assign]
    consumer._kq_core.heartbeat.due = lambda now_ms: Beat.POLL  # type: ignore[method-assign]
    end = time.monotonic() + 60
    while consumer._kq_fetcher is None:
        assert time.monotonic() < end
        consumer.keep_alive()
        time.sleep(0.02)
    consumer._kq_core.other_sizes = lambda now_ms: None  # type: ignore[method-assign]
    told = consumer.position([FIRST, SECOND])
    assert [part.offset for part in told] == [len(found) for found in reader.seen.values()]
    for _ in range(5):
        reader.poll()
    assert reader.seen == {0: list(range(EACH)), 1: list(range(EACH))}


def test_what_was_held_through_a_change_of_sizes_is_committed_before_anything_comes_after_it(reader: Reader) -> None:
    consumer = reader.consumer
    consumer.assign([TopicPartition("orders", 0, 0)])
    reader.until(lambda: len(reader.seen[0]) >= 10)
    time.sleep(0.3)
    consumer._kq_change_sizes(NEAR)
    assert consumer.position([FIRST])[0].offset == len(reader.seen[0])
    reader.until(lambda: len(reader.seen[0]) >= EACH)
    assert not consumer._kq_held
    assert consumer.position([FIRST])[0].offset == EACH
    consumer.commit(asynchronous=False)
    assert consumer.committed([FIRST], 60)[0].offset == EACH


def test_a_partition_that_goes_between_two_batches_of_a_change_of_sizes(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = reader.consumer
    consumer._kq_reads_ahead = False
    consumer.incremental_assign([TopicPartition("orders", 0, 0), TopicPartition("orders", 1, 0)])
    reader.until(lambda: len(reader.seen[0]) >= 5)
    assert not consumer._kq_held
    monkeypatch.setattr(receiving, "DRAIN_MESSAGES", 20)
    time.sleep(0.3)
    pull, counts = consumer._kq_pull, []

    def pulled(count: int, timeout_s: float) -> list[confluent_kafka.Message]:
        if sum(counts) > 0 and consumer._kq_pull is not pull:
            consumer._kq_pull = pull  # type: ignore[method-assign]
            consumer._kq_listener.call_back(reader.lose, FIRST)
        # the first batch is whole, however late librdkafka has fetched it
        messages = pull(count, timeout_s if counts else 60)
        counts.append(len(messages))
        return messages

    consumer._kq_pull = pulled  # type: ignore[method-assign]
    consumer._kq_change_sizes(NEAR)
    assert counts[0] == 20
    assert [part.offset for part in consumer.committed([FIRST], 60)] == [len(reader.seen[0])]
    before = len(reader.seen[0])
    reader.until(lambda: len(reader.seen[1]) >= EACH)
    assert reader.seen[1] == list(range(EACH))
    assert len(reader.seen[0]) == before


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_the_group_gives_a_partition_back_within_one_batch(servers: str, reset: str) -> None:
    reader = Reader(servers, **{"enable.auto.commit": False, "auto.offset.reset": reset})
    consumer = reader.consumer
    committed_before(servers, reader.group, [10])
    consumer.incremental_assign([FIRST])
    reader.until(lambda: len(reader.seen[0]) >= 20)

    def again() -> None:
        # The application commits nothing of what it has not finished, and wants it again.
        _on_gone(None, consumer, [FIRST])
        cimpl.Consumer.incremental_unassign(consumer, [FIRST])
        reader.regain(FIRST)
        reader.seen[0].clear()

    done = reader.then(again)
    reader.until(lambda: bool(done) and len(reader.seen[0]) >= EACH - 10)
    assert reader.seen[0] == list(range(10, EACH))
    consumer.close()


@pytest.mark.parametrize("to", [7, OFFSET_BEGINNING, OFFSET_END])
def test_a_seek_within_a_batch(reader: Reader, to: int) -> None:
    consumer = reader.consumer
    consumer.assign([TopicPartition("orders", 0, 0)])
    reader.until(lambda: len(reader.seen[0]) >= 20)

    def seek() -> None:
        consumer.seek(TopicPartition("orders", 0, to))
        reader.seen[0].clear()

    done = reader.then(seek)
    if to == OFFSET_END:
        reader.until(lambda: bool(done))
        for _ in range(5):
            reader.poll()
        assert reader.seen[0] == []
    else:
        first = max(0, to)
        reader.until(lambda: bool(done) and len(reader.seen[0]) >= EACH - first)
        assert reader.seen[0] == list(range(first, EACH))


def test_a_pause_within_a_batch(reader: Reader) -> None:
    consumer = reader.consumer
    consumer.assign([TopicPartition("orders", 0, 0), TopicPartition("orders", 1, 0)])
    reader.until(lambda: len(reader.seen[0]) >= 20)
    done = reader.then(lambda: consumer.pause([FIRST]))
    reader.until(lambda: bool(done) and len(reader.seen[1]) >= EACH)
    before = len(reader.seen[0])
    assert consumer.position([FIRST])[0].offset == before
    assert before < EACH
    consumer.resume([FIRST])
    reader.until(lambda: len(reader.seen[0]) >= EACH)
    assert reader.seen == {0: list(range(EACH)), 1: list(range(EACH))}


def test_a_pause_within_a_batch_while_some_before_it_are_held(reader: Reader) -> None:
    consumer = reader.consumer
    consumer.assign([TopicPartition("orders", 0, 0)])
    reader.until(lambda: len(reader.seen[0]) >= 20)
    while not consumer._kq_held:
        consumer._kq_take(5, 0.5)
    done = reader.then(lambda: consumer.pause([FIRST]))
    while not done:
        consumer._kq_take(5, 0.5)
    assert consumer.poll(0.2) is None
    assert consumer.position([FIRST])[0].offset == len(reader.seen[0])
    consumer.resume([FIRST])
    reader.until(lambda: len(reader.seen[0]) >= EACH)
    assert consumer.poll(0.2) is None
    assert reader.seen[0] == list(range(EACH))


@pytest.mark.parametrize("to", [OFFSET_BEGINNING, OFFSET_END])
def test_sizes_that_change_right_after_a_seek(servers: str, reader: Reader, to: int) -> None:
    consumer = reader.consumer
    committed_before(servers, reader.group, [150])
    consumer.assign([TopicPartition("orders", 0, 100)])
    reader.until(lambda: len(reader.seen[0]) >= 10)
    consumer.seek(TopicPartition("orders", 0, to))
    reader.seen[0].clear()
    consumer._kq_pull = lambda count, timeout_s: []  # type: ignore[method-assign]
    consumer._kq_change_sizes(NEAR)
    del consumer._kq_pull
    if to == OFFSET_END:
        for _ in range(5):
            reader.poll()
        assert reader.seen[0] == []
    else:
        reader.until(lambda: len(reader.seen[0]) >= EACH)
        assert reader.seen[0] == list(range(EACH))


def test_callbacks_are_served_while_many_messages_are_held(reader: Reader) -> None:
    consumer = reader.consumer
    consumer.assign([TopicPartition("orders", 0, 0)])
    reader.until(lambda: len(reader.seen[0]) >= 1)
    time.sleep(0.3)
    consumer._kq_change_sizes(NEAR)
    serve, served = consumer._kq_serve_member, []

    def counted() -> None:
        served.append(len(consumer._kq_held))
        serve()

    consumer._kq_serve_member = counted  # type: ignore[method-assign]
    while len(served) < 3:
        time.sleep(2 * receiving.AHEAD_S)
        reader.take(consumer.consume(1, 0))
        assert consumer._kq_held
    assert reader.seen[0] == list(range(len(reader.seen[0])))


def test_the_assignment_is_not_asked_for_with_each_message(reader: Reader) -> None:
    consumer = reader.consumer
    consumer.assign([FIRST, SECOND])
    consumer._kq_change_sizes(NEAR)
    follow, asked, calls = consumer._kq_follow_assignment, [], 0

    def counted() -> None:
        asked.append(calls)
        follow()

    consumer._kq_follow_assignment = counted  # type: ignore[method-assign]
    began = time.monotonic()
    while sum(map(len, reader.seen.values())) < 2 * EACH:
        assert time.monotonic() < began + 60
        reader.take(consumer.consume(1, 0.1))
        calls += 1
    assert len(asked) < calls / 2  # with statistics, four times a second, and commits
    assert reader.seen[0] == reader.seen[1] == list(range(EACH))


def test_what_has_been_received_is_not_kept_while_messages_are_held(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReceivedOffsets, "MOST_MESSAGES_PER_PARTITION", 1)
    # One fetch brings all: of fetches of one batch no more than that would be held.
    reader = Reader(servers, **{"fetch.message.max.bytes": 1_000_000})
    consumer = reader.consumer
    try:
        consumer.assign([TopicPartition("orders", 0, 0)])
        reader.until(lambda: bool(consumer._kq_held))
        while len(reader.seen[0]) < 100:
            consumer._kq_serve_at = 0.0
            reader.poll()
            assert consumer._kq_held
            assert consumer._kq_received._count < 30
    finally:
        consumer.close()


def test_a_change_of_sizes_that_a_signal_ends_is_made_the_next_time(reader: Reader) -> None:
    consumer = reader.consumer
    consumer.assign([TopicPartition("orders", 0, 0)])
    reader.until(lambda: len(reader.seen[0]) >= 10)
    wanted = [NEAR]
    consumer._kq_core.other_sizes = lambda now_ms: wanted.pop() if wanted else None  # type: ignore[method-assign]
    fetch_in = consumer._kq_fetch_by

    def ended(*_: Any) -> None:
        consumer._kq_fetch_by = fetch_in  # type: ignore[method-assign]
        raise Stop

    consumer._kq_fetch_by = ended  # type: ignore[method-assign]
    with pytest.raises(Stop):
        reader.until(lambda: False)
    reader.until(lambda: len(reader.seen[0]) >= EACH)
    end = time.monotonic() + 60
    while consumer._kq_fetcher is None:
        assert time.monotonic() < end
        reader.poll()
    assert reader.seen[0] == list(range(EACH))
    assert consumer.get_watermark_offsets(FIRST, cached=True) is not None


def test_watermarks_are_those_of_the_client_that_fetches(servers: str, reader: Reader) -> None:
    consumer = reader.consumer
    consumer.assign([TopicPartition("orders", 0, 0)])
    consumer._kq_change_sizes(NEAR)
    reader.until(lambda: len(reader.seen[0]) >= EACH)
    assert consumer.get_watermark_offsets(FIRST, cached=True) == (0, EACH)
    assert consumer.get_watermark_offsets(FIRST, 60) == (0, EACH)
