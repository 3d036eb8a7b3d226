"""docs/reference/metrics.md: what `metrics()` gives, asked of a producer and a consumer that have done some work."""

import time

from kclient_telemetry.naming import telemetry_name

from docs.generate.page import head
from kclient_quota import Consumer, MetricName, Producer
from kclient_quota.broker import EmbeddedBroker

_WORK_S = 3.5
_WORDS = {
    "throttle-time-avg": "mean throttle time of all answers of the last minute, zeros too, as Java's client counts, ms",
    "throttle-time-max": "longest throttle time of the last minute, ms",
    "throttle-time-total": "sum of all throttle times, ms",
    "throttle-time-last": "the latest throttle time that was not zero, ms",
    "throttle-count": "answers that carried a throttle time",
    "quota-wait-time-total": "how long calls have waited for the quota, summed over threads, ms",
    "quota-wait-time-avg": "mean wait of a call that had to wait for the quota, ms",
    "quota-wait-time-max": "longest wait of one call for the quota, ms",
    "quota-queue-time-avg": "mean time that messages have waited in the producer's queue before they were sent, ms",
    "quota-queue-time-max": "longest time that a message has waited there, ms",
    "quota-queue-time-total": "how long messages have waited there, summed over messages, ms",
    "quota-messages-expired-total": "messages that were given up before they were sent: not worth sending any more",
    "quota-messages-dropped-total": "messages that were given up before they were sent: their lane was full, or a newer one of their key has come",
    "quota-messages-per-byte-avg": "messages sent for each byte of the quota that they are expected to take",
    "quota-payload-per-byte-avg": "bytes of keys, values and headers sent for each byte of the quota that they are expected to take",
    "quota-compression-rate-avg": "bytes of the quota for each byte of records: batching's overhead and compression together",
    "quota-batch-size-avg": "bytes of records that left together for one partition",
    "quota-batch-fill-avg": "bytes of records that left together, as a part of the largest batch that is worth waiting for",
    "quota-fetch-lost-bytes-total": "bytes of the quota that were fetched and thrown away: batches that were cut off, and what a rebalance or a seek made the consumer forget",
    "quota-fetch-lost-ratio": "bytes that were fetched and thrown away, as a part of all bytes received",
    "fetch-stalled-brokers": "brokers whose next batch is larger than the quota will ever let through",
    "last-poll-seconds-ago": "since the application last polled, s",
    "poll-idle-ratio-avg": "part of the time that the application spends inside poll()",
    "poll-headroom-ms": "what is left of max.poll.interval.ms, ms",
}
_THROTTLED = ("produce", "fetch", "request")


def page() -> str:
    """The whole page."""
    with EmbeddedBroker(topics={"orders": 1}) as cluster:
        cluster.set_quota(client_id="app", producer_byte_rate=50_000, consumer_byte_rate=50_000)
        conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "app"}
        with (
            Producer(conf) as producer,
            Consumer({**conf, "group.id": "app", "auto.offset.reset": "earliest"}) as consumer,
        ):
            producer.produce("orders", b"1")
            producer.flush(10)
            consumer.subscribe(["orders"])
            consumer.poll(10)
            end = time.monotonic() + _WORK_S  # some figures need several polls and statistics
            while time.monotonic() < end:
                producer.poll(0)
                consumer.poll(0.1)
            tables = [_table("Producers", producer.metrics()), _table("Consumers", consumer.metrics())]
    return "\n".join(
        [
            head(
                "Metrics",
                "`metrics()` of every client returns `{MetricName(name, group, tags): value}`, named as Kafka's Java client "
                "names them. A producer with `quota.lanes` has its queue's once more for each lane, with a tag `lane`. "
                "Groups that end in `-node-metrics` have a tag `node-id` and are there once for each broker. "
                "A broker says one throttle time, the longest that any quota asks for, and not which quota that is. So "
                "`produce-throttle-time-*` or `fetch-throttle-time-*` (KIP-13) and `request-throttle-time-*` (KIP-124) are the "
                "same figures under two names. "
                "They are pushed as client telemetry (KIP-714) under the last column's names, with more that only telemetry "
                "has: see [client telemetry](../explanation/telemetry.md).",
            ),
            *tables,
        ]
    )


def _table(title: str, metrics: dict[MetricName, float]) -> str:
    lines = [f"## {title}\n", "| name | group | meaning | pushed as |", "|---|---|---|---|"]
    for name, group in sorted({(metric.name, metric.group) for metric in metrics}):
        lines.append(f"| `{name}` | `{group}` | {_meaning(name)} | `{telemetry_name(group, name)}` |")
    return "\n".join(lines) + "\n"


def _meaning(name: str) -> str:
    """A metric without a meaning here is an error: whoever adds one says what it means."""
    if name in _WORDS:
        return _WORDS[name]
    prefix, _, kind = name.partition("-")
    if prefix not in _THROTTLED:
        raise KeyError(name)
    return f"{_WORDS[kind]} (any quota: see above)"
