"""The peers at their best: settings found by hand for one quota and one size of message, as an expert would.

What it costs: they fit that quota. At a tenth of it the short queue holds ten times as many seconds of messages, and
they time out; at ten times as much it is too short to fill a batch. Nothing here knows when a quota changes.
"""

from typing import Any

_QUEUE_S = 1.0
"""How much of the quota may wait: less leaves batches unfilled, more waits where it may time out."""
_BATCH_S = 0.1
_RATIO = {"none": 1.0, "lz4": 2.0, "zstd": 4.5}
"""What compression makes of orders in batches; measured, as a person who tunes would."""


def librdkafka(spec: dict[str, Any]) -> dict[str, Any]:
    """Settings beyond the address, the client-id and the compression; none for a client as shipped."""
    if spec["client"] == "plain-our-settings":
        return _ours(spec)
    if spec["client"] != "plain-tuned":
        return {}
    raw_per_s = spec["quota"] * _ratio(spec)
    return {
        "enable.idempotence": True,
        "max.in.flight.requests.per.connection": 1,
        "linger.ms": 100,
        "queue.buffering.max.messages": max(20, int(raw_per_s * _QUEUE_S / (spec["size"] + 12))),
        "batch.size": int(min(max(raw_per_s * _BATCH_S, 16_384), 1_000_000)),
        "request.timeout.ms": 60_000,
    }


def java(spec: dict[str, Any]) -> dict[str, Any]:
    """The same for the Java client, whose queue is measured in bytes."""
    if spec["client"] != "java-tuned":
        return {}
    raw_per_s = spec["quota"] * _ratio(spec)
    batch = int(min(max(raw_per_s * _BATCH_S, 16_384), 1_000_000))
    return {
        "linger.ms": 100,
        "batch.size": batch,
        # A batch that is being filled has its whole size set aside, one for each partition.
        "buffer.memory": int(raw_per_s * _QUEUE_S) + (max(spec["partitions"], 1) + 1) * batch,
        "max.in.flight.requests.per.connection": 1,
        "max.block.ms": 600_000,
    }


def _ratio(spec: dict[str, Any]) -> float:
    return _RATIO[spec["compression"]] if spec["kind"] == "orders" else 1.0


def _ours(spec: dict[str, Any]) -> dict[str, Any]:
    """What our producer tells librdkafka once it knows this quota."""
    given = {"bootstrap.servers": spec["bootstrap"], "client.id": spec["client_id"]}
    return told_by_ours({**given, "producer_byte_rate": spec["quota"]})


def told_by_ours(conf: dict[str, Any]) -> dict[str, Any]:
    """Every setting that our producer adds to `conf` for librdkafka, callbacks left out."""
    import confluent_kafka  # noqa: PLC0415 - a peer's process must not load ours before it is asked for

    told: dict[str, Any] = {}
    plain = confluent_kafka.Producer

    class Told(plain):  # type: ignore[misc, valid-type]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            told.update(*args, **kwargs)
            super().__init__(*args, **kwargs)

    confluent_kafka.Producer = Told  # type: ignore[misc]
    try:
        from kclient_quota import Producer  # noqa: PLC0415 - as above

        Producer(conf).close()
    finally:
        confluent_kafka.Producer = plain  # type: ignore[misc]
    return {key: value for key, value in told.items() if key not in conf and not callable(value)}
