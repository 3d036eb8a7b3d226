"""What one setting would buy: told where it is much, on messages that compress and on those that do not."""

import json
import random

import pytest
from kclient_telemetry.compression import CompressionType

from kclient_quota.pacing.sending import worth as worths
from kclient_quota.pacing.sending.worth import SAMPLE, worth
from kclient_quota.wire.records import Record, build_batch


def orders(count=SAMPLE, seed=1):
    chance = random.Random(seed)
    return [
        Record(
            value=json.dumps(
                {
                    "order_id": f"{chance.randrange(10**12):012}",
                    "customer": {"id": chance.randrange(10**6), "segment": chance.choice(["retail", "business"])},
                    "lines": [{"sku": f"SKU-{chance.randrange(10**5)}", "quantity": chance.randrange(9)}],
                    "currency": "EUR",
                    "status": "accepted",
                    "warehouse": chance.choice(["north", "south"]),
                }
            ).encode(),
            timestamp_ms=1_700_000_000_000 + number,
        )
        for number in range(count)
    ]


def noise(count=SAMPLE, size=1_000):
    chance = random.Random(2)
    return [Record(value=chance.randbytes(size), timestamp_ms=0) for _ in range(count)]


def test_orders_that_are_not_compressed_would_gain_what_compressing_them_shows():
    sample = orders()
    found = worth(sample, compression="none", together=100)
    plain, packed = len(build_batch(sample)), len(build_batch(sample, compression=CompressionType.ZSTD))
    assert found.setting == "compression.type=zstd"
    assert found.ratio == pytest.approx(plain / packed)
    assert found.times == pytest.approx((plain + 89) / (packed + 89))
    assert found.ratio > found.times > 3, "the request around a batch is not compressed"
    said = found.sentence("orders")
    assert said.startswith(
        f"orders compress {found.ratio:.1f} : 1 in batches of 100; compression.type=zstd would send "
    )
    assert said.endswith(" times the messages (measured on 100)")


def test_small_messages_alone_in_their_batches_would_gain_by_waiting_for_each_other():
    small = [Record(value=b"%020d" % number, timestamp_ms=0) for number in range(SAMPLE)]
    assert worth(small, compression="none", together=1) is None, "whoever batches himself is not told to linger"
    found = worth(small, compression="zstd", together=1, most_together=50)
    assert (found.setting, found.together) == ("linger.ms=100", 50)
    assert found.times > 6
    assert (
        worth(noise(size=20), compression="none", together=1, most_together=50)
        .sentence("readings")
        .startswith("readings do not compress in batches of 50; linger.ms=100 would send ")
    )


@pytest.mark.parametrize(
    ("sample", "compression", "together", "most"),
    [
        (noise(), "none", 100, 100),  # nothing makes less of it
        (noise(), "none", 1, 100),  # large as they are, the request around each is little
        (orders(), "zstd", 100, 100),
        (orders(), "lz4", 100, None),
        (orders(5), "none", 5, None),  # too few to tell
        (orders(), "brotli", 100, None),
        ([], "none", 1, None),
    ],
)
def test_what_would_not_buy_much_is_not_told(sample, compression, together, most):
    assert worth(sample, compression=compression, together=together, most_together=most) is None


def test_the_next_best_where_a_library_is_missing(monkeypatch):
    monkeypatch.setattr(worths, "is_available", lambda codec: codec is not CompressionType.ZSTD)
    assert worth(orders(), compression="none", together=100).setting == "compression.type=lz4"


def test_a_batch_is_never_larger_than_the_sample_and_never_empty():
    sample = orders(20)
    assert worth(sample, compression="none", together=5_000).together == 20
    one = worth(sample, compression="none", together=0.2, most_together=20)
    assert one is None or one.together in {1, 20}
