"""What librdkafka makes of batches: bytes of a produce request that holds n messages, by data and compression.

`python -m benchmarks.batch_sizes` sends batches of 1, 2, 4, ... messages to the embedded broker, reads the sizes of the
requests that quotas count, and writes them to `kclient_quota/simulation/batch_sizes.py`, by which the simulation of the
send queue goes. Data are seeded: the same bytes every time.
"""

import argparse
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from confluent_kafka import Producer

from benchmarks.ledger import value_of
from benchmarks.payloads import SIZES, key_of
from kclient_quota.broker import EmbeddedBroker

PRODUCE: Final = 0
MOST_BYTES: Final = 900_000
MOST_MESSAGES: Final = 4_096
TIMES: Final = 3
"""Every batch is sent so many times, with other messages, and the mean counts."""
CODECS: Final = ("none", "lz4", "zstd")
VALUES: Final = 5_000
HEAD: Final = '''"""Bytes of librdkafka's requests by messages in them; from `python -m benchmarks.batch_sizes`."""

from typing import Final

BATCH_BYTES: Final[dict[tuple[str, str], tuple[int, tuple[tuple[int, int], ...]]]] = {
'''
TARGET: Final = Path(__file__).parents[1] / "kclient_quota" / "simulation" / "batch_sizes.py"


def values(kind: str) -> tuple[bytes, ...]:
    """The values of one kind of data, seeded."""
    return tuple(value_of(number, SIZES[kind], kind) for number in range(VALUES))


def measure(kind: str, codec: str) -> dict[str, Any]:
    """Bytes of requests with 1, 2, 4, ... messages."""
    data = values(kind)
    size = fmean(map(len, data))
    found: list[tuple[int, int]] = []
    with EmbeddedBroker(topics={"orders": 1}) as cluster:
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "client.id": "order-service",
                "compression.type": codec,
                "enable.idempotence": True,
                "linger.ms": 1_000,
                "batch.size": 1_000_000,
                "queue.buffering.max.kbytes": 1_000_000,
            }
        )
        messages, at = 1, 0
        while messages <= MOST_MESSAGES and messages * size <= MOST_BYTES:
            sizes = []
            for _ in range(TIMES):
                seen = len(cluster.requests)
                for number in range(at, at + messages):
                    producer.produce("orders", data[number % len(data)], key=key_of(number, 1))
                at += messages
                producer.flush()
                sizes += [each.size_bytes for each in cluster.requests[seen:] if each.api_key == PRODUCE]
            if len(sizes) != TIMES:
                raise RuntimeError(f"{kind}, {codec}: {messages} messages were not one batch each time: {sizes}")
            found.append((messages, round(fmean(sizes))))
            messages *= 2
    return {"data": kind, "compression": codec, "value_bytes": round(size), "batches": found}


def main() -> None:
    """Measures all and writes the table."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    rows = [measure(kind, codec) for kind in SIZES for codec in CODECS]
    for row in rows:
        print(row["data"], row["compression"], [(n, round(size / n, 1)) for n, size in row["batches"]])
    entries = "".join(_entry(row) for row in rows)
    TARGET.write_text(HEAD + entries + "}\n")


def _entry(row: dict[str, Any]) -> str:
    pairs = "".join(f"            ({n}, {size}),\n" for n, size in row["batches"])
    key = f'    ("{row["data"]}", "{row["compression"]}"): '
    return f"{key}(\n        {row['value_bytes']},\n        (\n{pairs}        ),\n    ),\n"


if __name__ == "__main__":
    main()
