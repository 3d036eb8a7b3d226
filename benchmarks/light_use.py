"""What the send queue costs whoever does not need it: latencies below the quota, ours beside plain confluent-kafka.

`python -m benchmarks.light_use` sends evenly at parts of a quota that Apache Kafka enforces, and prints, for messages
offered at the same times by both clients, each in a process of its own, the median and the 99th percentile from calling
`produce()` to the delivery report, and what the broker recorded as a part of the quota. Clients that are compared run
at the same time, so that whatever else the machine does befalls both; `--side-by-side 2` runs nothing else beside them.
"""

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import cell as children
from benchmarks import figures, report
from benchmarks.ledger import value_of
from benchmarks.payloads import SIZES, key_of
from benchmarks.producing import producer_class
from kclient_quota.simulation.batching import Batching
from kclient_quota.testing.apache import ApacheKafka

QUOTA: Final = 51_200
CLIENTS: Final = ("plain", "ours")
DATA: Final = ("orders", "noise")
PARTITIONS: Final = (1, 12)
PARTS: Final = (0.3, 0.79)
WARM_UP_S: Final = 5
SIDE_BY_SIDE: Final = 4
RESULTS: Final = Path(__file__).parent / "results" / "light-use.json"


class Run(NamedTuple):
    """What one client sends: messages of one kind, to so many partitions, of such a part of the quota."""

    client: str
    data: str
    partitions: int
    part: float

    @property
    def name(self) -> str:
        """Of its topic, and its client.id."""
        return f"light-{self.data}-{self.partitions}-{round(100 * self.part)}-{self.client}"

    @property
    def per_s(self) -> float:
        """Messages a second, each in a request of its own."""
        return self.part * QUOTA / Batching(self.data, "none", 2 * len(self.name)).request_bytes(1)


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """The client's side: sends for `seconds`, `per_s` a second, and says how long each message took."""
    producer = producer_class(spec["client"])({"bootstrap.servers": spec["bootstrap"], "client.id": spec["name"]})
    took_ms: list[float] = []
    producer.list_topics(spec["name"], 30)
    begin_s = time.monotonic()
    for number in range(int(spec["seconds"] * spec["per_s"])):
        due_s = begin_s + number / spec["per_s"]
        while (left_s := due_s - time.monotonic()) > 0:
            producer.poll(left_s)

        def told(_error: Any, _message: Any, called_s: float = time.monotonic()) -> None:
            if called_s >= begin_s + WARM_UP_S:
                took_ms.append((time.monotonic() - called_s) * 1000)

        value = value_of(number, SIZES[spec["data"]], spec["data"])
        producer.produce(spec["name"], value, key_of(number, spec["partitions"]), on_delivery=told)
        producer.poll(0)
    left = producer.flush(60)
    p50, p99 = figures.percentile(took_ms, 0.5), figures.percentile(took_ms, 0.99)
    return {"sent": number + 1, "left": left, "p50_ms": p50, "p99_ms": p99, "seconds": time.monotonic() - begin_s}


def _measured(cluster: ApacheKafka, each: Run, seconds: float) -> dict[str, Any]:
    spec = {**each._asdict(), "name": each.name, "per_s": each.per_s, "seconds": seconds}
    found = children.measure("light_use", {**spec, "bootstrap": cluster.bootstrap_servers}, timeout_s=seconds + 120)
    recorded = sum(value for _, value in figures.of_client(cluster.byte_samples(), "Produce", each.name))
    return {**found, "used": recorded / found["seconds"] / QUOTA}


def main(arguments: Sequence[str] | None = None) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40, help="time of each (default: %(default)s)")
    parser.add_argument(
        "--side-by-side", type=int, default=SIDE_BY_SIDE, help="clients at a time (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the figures are kept (default: %(default)s)")
    options = parser.parse_args(arguments)
    before = report.machine()
    runs = [Run(client, *where) for where in _places() for client in CLIENTS]
    with ApacheKafka() as cluster, ThreadPoolExecutor(options.side_by_side) as pool:
        for each in runs:
            cluster.create_topic(each.name, each.partitions)
            cluster.set_quota(client_id=each.name, producer_byte_rate=QUOTA)
        found = dict(zip(runs, pool.map(lambda each: _measured(cluster, each, options.seconds), runs), strict=True))
    rows = [{**each._asdict(), **row} for each, row in found.items()]
    report.write_json(options.json, {"machine": before, "commit": report.commit(), "rows": rows})
    print("data    partitions  of quota  client  messages   p50 ms   p99 ms  recorded")
    for each, row in found.items():
        where = f"{each.data:<8}{each.partitions:>9}  {each.part:>8.2f}  {each.client:<6}"
        print(f"{where} {row['sent']:>9} {row['p50_ms']:>8.1f} {row['p99_ms']:>8.1f} {row['used']:>9.3f}")


def _places() -> list[tuple[str, int, float]]:
    return [(data, partitions, part) for data in DATA for partitions in PARTITIONS for part in PARTS]


if __name__ == "__main__":
    main()
