"""Small messages under a large quota, more of them than there is room for: ours beside plain confluent-kafka.

`python -m benchmarks.small_messages` has each client, one after the other in a process of its own, send as many
messages as it can to Apache Kafka, and prints how many were delivered in a second, what part of the quota the broker
recorded, the longest throttle, and the processor time of a message. What limits there is not the quota alone: in Python
a message that passes our queue takes tens of microseconds.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import cell as children
from benchmarks import figures, report
from benchmarks.ledger import value_of
from benchmarks.payloads import SIZES, key_of
from benchmarks.producing import producer_class
from kclient_quota.testing.apache import ApacheKafka

CLIENTS: Final = ("plain", "ours")
CELLS: Final = (
    ("readings", "none", 12, 3_000_000),
    ("readings", "none", 12, 10_000_000),
    ("orders", "none", 12, 10_000_000),
    ("orders", "none", 100, 10_000_000),
    ("orders", "zstd", 12, 10_000_000),
    ("readings", "none", 12, 50_000_000),
    ("orders", "none", 12, 50_000_000),
)
"""Data, compression, partitions, bytes per second."""
WARM_UP_S: Final = 20
"""Ours is sure to be alone after fifteen, plain has used up what the broker's window lets through."""
DIFFERENT: Final = 10_000
RESULTS: Final = Path(__file__).parent / "results" / "small-messages.json"


class Run(NamedTuple):
    """What one client sends, and how much of it it may."""

    client: str
    data: str
    compression: str
    partitions: int
    quota: int

    @property
    def name(self) -> str:
        """Of its topic, and its client.id."""
        return f"small-{self.data}-{self.compression}-{self.partitions}-{self.quota}-{self.client}"


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """The client's side: sends for `seconds` after its first ones, and says how many messages were delivered then."""
    longest_ms = 0.0
    delivered = 0

    def throttled(event: Any) -> None:
        nonlocal longest_ms
        longest_ms = max(longest_ms, event.throttle_time * 1000)

    def told(error: Any, _message: Any) -> None:
        nonlocal delivered
        delivered += error is None

    conf = {"bootstrap.servers": spec["bootstrap"], "client.id": spec["name"], "throttle_cb": throttled}
    producer = producer_class(spec["client"])({**conf, "compression.type": spec["compression"]})
    producer.list_topics(spec["name"], 30)
    data, partitions = spec["data"], spec["partitions"]
    messages = [(value_of(number, SIZES[data], data), key_of(number, partitions)) for number in range(DIFFERENT)]
    begin_s, number = time.monotonic(), 0
    since: tuple[float, int, float] | None = None
    while (now_s := time.monotonic() - begin_s) < WARM_UP_S + spec["seconds"]:
        if since is None and now_s >= WARM_UP_S:
            since = now_s, delivered, time.process_time()
        value, key = messages[number % DIFFERENT]
        try:
            producer.produce(spec["name"], value, key, on_delivery=told)
            number += 1
            producer.poll(0)
        except BufferError:
            producer.poll(0.05)
    assert since is not None
    took_s, messages_told = now_s - since[0], delivered - since[1]
    cpu_us = (time.process_time() - since[2]) / max(1, messages_told) * 1e6
    left = producer.flush(60)
    return {
        "messages_per_s": messages_told / took_s,
        "cpu_us": cpu_us,
        "throttle_ms": longest_ms,
        "left": left,
        "seconds": time.monotonic() - begin_s,
    }


def _measured(cluster: ApacheKafka, each: Run, seconds: float) -> dict[str, Any]:
    cluster.create_topic(each.name, each.partitions)
    cluster.set_quota(client_id=each.name, producer_byte_rate=each.quota)
    spec = {**each._asdict(), "name": each.name, "seconds": seconds, "bootstrap": cluster.bootstrap_servers}
    found = children.measure("small_messages", spec, timeout_s=seconds + 180)
    recorded = sum(value for _, value in figures.of_client(cluster.byte_samples(), "Produce", each.name))
    return {**found, "used": recorded / found["seconds"] / each.quota}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20, help="time of each (default: %(default)s)")
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the figures are kept (default: %(default)s)")
    options = parser.parse_args(arguments)
    before, rows = report.machine(), []
    print(
        "data      compression  partitions       quota  client  messages/s  recorded  throttle ms  us of CPU",
        flush=True,
    )
    with ApacheKafka(heap_mb=1_024) as cluster:
        for each in (Run(client, *cell) for cell in CELLS for client in CLIENTS):
            row = {**each._asdict(), **_measured(cluster, each, options.seconds)}
            rows.append(row)
            where = f"{each.data:<10}{each.compression:<11}{each.partitions:>12}{each.quota:>12,}  {each.client:<6}"
            figure = (
                f"{row['messages_per_s']:>12,.0f}{row['used']:>10.3f}{row['throttle_ms']:>13,.0f}{row['cpu_us']:>11.1f}"
            )
            print(f"{where}{figure}", flush=True)
    report.write_json(options.json, {"machine": before, "commit": report.commit(), "rows": rows})


if __name__ == "__main__":
    main()
