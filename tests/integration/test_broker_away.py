"""One of three brokers is away, and nobody else leads its partitions: the others get what is theirs, as with plain."""

import time

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker

QUOTA, PER_S = 50_000, 50


def test_what_is_for_other_brokers_does_not_wait_for_one_that_is_away():
    reports: list[tuple[float, object]] = []
    longest_s, sent = 0.0, 0
    with EmbeddedBroker(brokers=3, topics={"orders": 6}) as cluster:
        cluster.set_quota(client_id="app", producer_byte_rate=QUOTA)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "app"})
        begin = time.monotonic()

        def report(error: object, _message: object) -> None:
            reports.append((time.monotonic() - begin, error))

        is_up = True
        while (now := time.monotonic() - begin) < 10:
            if is_up and now > 2:
                cluster.stop_broker(3)
                is_up = False
            if sent > now * PER_S:
                producer.poll(0.01)
                continue
            asked = time.monotonic()
            producer.produce("orders", b"x" * 950, f"key-{sent % 60}", on_delivery=report)
            longest_s = max(longest_s, time.monotonic() - asked)
            sent += 1
        cluster.start_broker(3)
        assert producer.flush(60) == 0
        producer.close()
    assert longest_s < 4  # two seconds, and a busy machine
    late = [at for at, _ in reports if 6 <= at < 10]
    assert len(late) > 0.4 * 4 * PER_S, "two thirds of all messages are for those that are up"
    assert len(reports) == sent
    assert not any(error for _, error in reports)
