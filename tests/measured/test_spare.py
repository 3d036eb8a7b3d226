"""How much of a large quota's messages go straight to librdkafka, and what is paced of more than there is."""

import threading

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker

THREADS = 4


def produced(broker: EmbeddedBroker, each: int, value: bytes) -> Producer:
    """A first message, and then so many of each of four threads, all delivered."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "linger.ms": 5})
    # What comes before the first report, a twentieth of a second and more on a busy machine, goes by way of the queue.
    producer.produce("orders", value)
    producer.flush(60)

    def produce() -> None:
        for number in range(each):
            while True:
                try:
                    producer.produce("orders", value)
                except BufferError:
                    producer.poll(0.05)  # librdkafka's queue is full, as with plain
                else:
                    break
            if not number % 100:
                producer.poll(0)

    threads = [threading.Thread(target=produce) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert producer.flush(60) == 0
    return producer


def test_little_of_a_large_quota_goes_straight() -> None:
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        broker.set_quota(client_id="app", producer_byte_rate=1_000_000_000)
        producer = produced(broker, 20_000, b"x" * 27)
        # what is free before the sender's first look goes by way of its queue
        assert sum(state.admitted for state in producer.quota_state().values()) < 200_000
        producer.close()


def test_what_is_above_the_quota_is_paced() -> None:
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        broker.set_quota(client_id="app", producer_byte_rate=12_000_000)
        producer = produced(broker, 12_000, b"x" * 3_000)
        # 144 MB at 12 MB/s: the window of eleven seconds takes 132 of them without a throttle, and not what comes then.
        assert producer.metric("produce-throttle-time-max") < 1_500
        producer.close()
