"""A producer under a quota: nothing lost, nothing doubled, no long throttle; on both brokers."""

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kclient_quota.clients.producer import Producer
from kclient_quota.errors import QuotaThrottledError
from tests.contract.scenes import Scenes, named
from tests.read_committed import ids, read_ids

Unique = Callable[[str], str]
PAD = b"x" * 990


class Reports:
    """Delivery reports: where messages arrived, and which failed."""

    def __init__(self) -> None:
        self.failed: list[Any] = []
        self.partitions: Counter[int] = Counter()

    def __call__(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.partitions[message.partition()] += 1


def produce(producer: Producer, topic: str, count: int, *, keyed: bool = False) -> Reports:
    reports = Reports()
    for number in range(count):
        key = str(number) if keyed else None
        producer.produce(topic, b"%06d" % number + PAD, key=key, on_delivery=reports)
    assert producer.flush(60) == 0
    return reports


def finds_and_keeps(cluster: Any) -> None:
    topic, app = named("orders"), named("app")
    cluster.create_topic(topic, 1)
    cluster.set_quota(client_id=app, producer_byte_rate=50_000)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": app})
    begin = time.monotonic()
    reports = produce(producer, topic, 400)
    took_s = time.monotonic() - begin
    assert [state.limit for state in producer.quota_state().values()] == [50_000]
    assert [state.source for state in producer.quota_state().values()] == ["cluster"]
    producer.close()
    assert reports.failed == []
    assert read_ids(cluster, topic) == ids(400)
    # 400 kB at 50 kB/s is 8 s; an idle second's worth may go ahead.
    assert took_s >= 6.5


def learns(cluster: Any) -> None:
    topic, app = named("orders"), named("app")
    cluster.create_topic(topic, 1)
    cluster.set_quota(client_id=app, producer_byte_rate=50_000)
    throttles: list[float] = []
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": app, "quota.limit.source": "learned"}
    producer = Producer({**conf, "throttle_cb": lambda event: throttles.append(event.throttle_time)})
    reports = produce(producer, topic, 650)
    assert [state.source for state in producer.quota_state().values()] == ["learned"]
    producer.close()
    assert max(throttles) > 0
    assert reports.failed == []
    assert read_ids(cluster, topic) == ids(650)


def threads_share(cluster: Any) -> None:
    topic, app = named("orders"), named("app")
    cluster.create_topic(topic, 1)
    cluster.set_quota(client_id=app, producer_byte_rate=100_000)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": app})
    reports = Reports()

    def work(first: int) -> None:
        for number in range(first, 600, 3):
            producer.produce(topic, b"%06d" % number + PAD, on_delivery=reports)

    begin = time.monotonic()
    threads = [threading.Thread(target=work, args=(first,)) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert producer.flush(60) == 0
    # 600 kB at 100 kB/s is 6 s; what is idle may go ahead.
    assert time.monotonic() - begin >= 4
    producer.close()
    assert reports.failed == []
    assert read_ids(cluster, topic) == ids(600)


def hands_over_in_parts(cluster: Any) -> None:
    topic, app = named("orders"), named("app")
    cluster.create_topic(topic, 1)
    cluster.set_quota(client_id=app, producer_byte_rate=50_000)
    conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": app}
    reports = Reports()
    producer = Producer(conf)
    messages: list[dict[str, Any]] = [{"value": b"%06d" % number + PAD} for number in range(200)]
    assert producer.produce_batch(topic, messages, on_delivery=reports) == 200
    assert producer.flush(60) == 0
    producer.close()
    assert reports.partitions == {0: 200}
    # told by hand: what it begins with does not depend on how soon a busy cluster answers what the quota is
    # a batch of the queue leaves every 0.2 s: whoever waits for less than that is refused
    hasty = Producer({**conf, "max.block.ms": 50, "producer_byte_rate": 50_000})
    more: list[dict[str, Any]] = [{"value": b"%06d" % number + PAD} for number in range(200, 600)]
    went = hasty.produce_batch(topic, more)
    assert 0 < went < 400
    assert ["_error" in message for message in more] == [number >= went for number in range(400)]
    refused = 0
    for _ in range(4):  # two may wait, however large they are
        try:
            hasty.produce_batch(topic, [{"value": PAD * 100}])
        except QuotaThrottledError:
            refused += 1
    assert refused >= 1
    hasty.flush(15)
    hasty.close()
    seen = read_ids(cluster, topic)
    assert {number: seen[number] for number in ids(200 + went)} == ids(200 + went)


SCENES = [finds_and_keeps, learns, threads_share, hands_over_in_parts]


def test_the_quota_is_found_and_kept_without_loss_or_duplicates(scenes: Scenes) -> None:
    scenes(finds_and_keeps)


def test_a_learnt_limit_loses_nothing_either(scenes: Scenes) -> None:
    scenes(learns)


def test_threads_share_one_gate(scenes: Scenes) -> None:
    scenes(threads_share)


def test_a_batch_is_handed_over_in_parts(scenes: Scenes) -> None:
    scenes(hands_over_in_parts)


def test_quotas_hold_per_broker_and_all_of_them_are_used(three_brokers: Any) -> None:
    with ThreadPoolExecutor(2) as pool:
        sent = [pool.submit(uses_every_broker, three_brokers, keyed) for keyed in (False, True)]
    for each in sent:
        each.result()


def uses_every_broker(three_brokers: Any, keyed: bool) -> None:
    topic, app = named("orders"), named("app")
    three_brokers.create_topic(topic, 6)
    three_brokers.set_quota(client_id=app, producer_byte_rate=50_000)
    producer = Producer({"bootstrap.servers": three_brokers.bootstrap_servers, "client.id": app})
    begin = time.monotonic()
    reports = produce(producer, topic, 900, keyed=keyed)
    took_s = time.monotonic() - begin
    assert len(producer.quota_state()) >= 3
    producer.close()
    assert reports.failed == []
    assert read_ids(three_brokers, topic, 6) == ids(900)
    # 0.9 MB at three times 50 kB/s is 6 s.
    assert took_s >= 4
    assert len(reports.partitions) == 6


def test_a_quota_set_while_producing_flat_out_steps_in(cluster: Any, unique: Unique) -> None:
    topic, app = unique("orders"), unique("app")
    cluster.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": app})
    assert type(producer) is Producer
    count = 0
    reports = Reports()
    deadline = time.monotonic() + 120
    while all(state.limit is None for state in producer.quota_state().values()) or count < 3_000:
        assert time.monotonic() < deadline
        producer.produce(topic, b"%06d" % count + PAD, on_delivery=reports)
        producer.poll(0)
        count += 1
        if count == 1_000:
            cluster.set_quota(client_id=app, producer_byte_rate=400_000)
        if count > 1_000:
            time.sleep(0.0005)
    assert producer.flush(60) == 0
    producer.close()
    assert reports.failed == []
    assert read_ids(cluster, topic) == ids(count)
