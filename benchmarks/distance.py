"""`python -m benchmarks.distance`: consumers at a distance, ours beside plain confluent_kafka, MB/s and their ratio.

A broker of its own process stands behind proxies that delay. Every cell is read by plain confluent_kafka and by ours in
turn, each in a process of its own: without a quota, and under one. What is asked of ours under a quota is the smaller
of 0.97 of it and 0.95 of what plain reads un-throttled at that distance.
"""

import argparse
import json
import sys
import time
from statistics import median
from typing import Any

from benchmarks.processes import spawned

MODULE = "benchmarks.distance"
TOPIC = "distance"
PARTITIONS = 4
MESSAGE = b"x" * 1_000
WIRE_BYTES = 1_010
MEGABYTES = 96
BATCH_BYTES = 100_000
WARM_S = 3.0


def main() -> int:
    """Prints a line a cell, then the table as JSON if asked."""
    options = _options()
    if options.host is not None:
        _host(options.host, options.quota, options.batch)
    elif options.client is not None:
        _client(*options.client)
    else:
        _compare(options)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distance", description=__doc__)
    parser.add_argument("--rtt", type=int, nargs="+", default=[0, 2, 20, 80], help="round trips, ms")
    parser.add_argument("--quota", type=int, nargs="*", default=[100_000, 1_000_000, 5_000_000, 20_000_000, 50_000_000])
    parser.add_argument("--learn", action="store_true", help="ours is not told the quota")
    parser.add_argument("--batch", type=int, default=BATCH_BYTES, help="bytes of a batch")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--host", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--client", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args()


def _compare(options: argparse.Namespace) -> None:
    print("round trip  quota            plain MB/s  ours MB/s  ratio  of what is asked", flush=True)
    for rtt_ms in options.rtt:
        arguments = ["--host", str(rtt_ms), "--batch", str(options.batch), "--quota", *map(str, options.quota)]
        with spawned(MODULE, *arguments) as host:
            assert host.stdout is not None
            servers = host.stdout.readline().strip()
            plain = median(_measured(servers, "plain", 0, options) for _ in range(options.runs))
            for quota in [0, *options.quota]:
                kind = "learns" if options.learn and quota else "ours"
                ours = median(_measured(servers, kind, quota, options) for _ in range(options.runs))
                asked = min(0.97 * quota / 1e6, 0.95 * plain) if quota else 0.95 * plain
                name = f"{quota:,}" if quota else "none"
                ratios = f"{ours / plain:>6.2f} {ours / asked:>8.2f}"
                print(f"{rtt_ms:>7} ms  {name:<15} {plain:>11.1f} {ours:>10.2f} {ratios}", flush=True)
            host.stdin.close()


def _measured(servers: str, kind: str, quota: int, options: argparse.Namespace) -> float:
    with spawned(MODULE, "--client", servers, kind, str(quota), str(options.seconds)) as child:
        out, _ = child.communicate(timeout=120)
    return float(json.loads(out))


def _host(rtt_ms: int, quotas: list[int], batch: int) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415 - the parent needs none of these

    from kclient_quota.broker import EmbeddedBroker  # noqa: PLC0415
    from kclient_quota.testing.proxies import Proxies  # noqa: PLC0415

    with Proxies(1) as proxies, EmbeddedBroker(topics={TOPIC: PARTITIONS}) as cluster:
        producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "linger.ms": 200,
                "batch.size": batch,
                "batch.num.messages": max(1, batch // len(MESSAGE)),
            }
        )
        for number in range(MEGABYTES * 1_000):
            while True:
                try:
                    producer.produce(TOPIC, MESSAGE, partition=number % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.flush(60)
        proxies.stand_before(cluster)
        proxies.each(lambda proxy: proxy.delay(to_broker_ms=rtt_ms / 2, to_client_ms=rtt_ms / 2))
        for quota in quotas:
            cluster.set_quota(client_id=f"reader-{quota}", consumer_byte_rate=quota)
        print(proxies.bootstrap_servers, flush=True)
        sys.stdin.read()


def _client(servers: str, kind: str, quota: str, seconds: str) -> None:
    from confluent_kafka import TopicPartition  # noqa: PLC0415

    conf: dict[str, Any] = {"bootstrap.servers": servers, "client.id": f"reader-{quota}", "group.id": f"{kind}-{quota}"}
    conf |= {"enable.auto.commit": False, "enable.metrics.push": False}
    if kind == "plain":
        from confluent_kafka import Consumer  # noqa: PLC0415
    else:
        from kclient_quota import Consumer  # type: ignore[assignment] # noqa: PLC0415
    if kind == "learns":
        conf["quota.limit.source"] = "learned"
    consumer = Consumer(conf)
    begins = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
    consumer.assign(begins)
    while not consumer.consume(1, 1.0):
        pass
    warm_s = WARM_S if int(quota) else 1.0
    read, begin = 1, time.monotonic()
    counted, since = 0, None
    while True:
        messages = consumer.consume(1_000, 0.1)
        now = time.monotonic()
        read += len(messages)
        if read == MEGABYTES * 1_000:
            consumer.assign(begins)
            read = 0
        if since is not None:
            counted += len(messages)
            if now - since >= float(seconds):
                break
        elif now - begin >= warm_s:
            since = now
    consumer.close()
    print(json.dumps(counted * WIRE_BYTES / (now - since) / 1e6))


if __name__ == "__main__":
    sys.exit(main())
