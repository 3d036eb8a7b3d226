"""Many partitions with a little in each: of every response most is framing, 37 bytes for each partition."""

import time

from kclient_quota.broker import EmbeddedBroker
from tests.consuming import consumer_of
from tests.filling import fill

PARTITIONS = 500
BATCH = 10
RATE = 100_000


def test_few_bytes_of_many_partitions_do_not_take_a_response_each() -> None:
    """Half a megabyte in 500 batches; each in a response of its own, with 18.5 kB of framing, would take 100 s."""
    with EmbeddedBroker(topics={"t": PARTITIONS}) as cluster:
        fill(cluster, "t", PARTITIONS * BATCH, BATCH, PARTITIONS, 100)
        cluster.set_quota(client_id="app", consumer_byte_rate=RATE)
        found = []
        with consumer_of(cluster, "t", "app") as consumer:
            until = time.monotonic() + 40
            while len(found) < PARTITIONS * BATCH and time.monotonic() < until:
                found += [(message.partition(), message.offset()) for message in consumer.consume(500, 0.5)]
        assert sorted(found) == [(partition, offset) for partition in range(PARTITIONS) for offset in range(BATCH)]
