"""Pushes of many clients, made by a seed, as a receiver writes them."""

import random
from uuid import UUID

from kclient_telemetry.metric import MetricKind, Point, PointKey, PushPoint
from kclient_telemetry.otlp import encode
from kclient_telemetry.receiver.fanout import FanOut
from kclient_telemetry.receiver.plugin import AuthorizableRequestContext, ClientTelemetryContext, ClientTelemetryPayload

from kclient_quota import Producer

BEGIN_MS = 1_800_000_000_000
EVERY_MS = 20_000
PREFIX = "org.apache.kafka."


def gauge(name, value, at_ms, **attributes):
    point = Point(PointKey(PREFIX + name, tuple(attributes.items())), MetricKind.GAUGE, value)
    return PushPoint(point, value, None, at_ms, delta=False)


def total(name, value, since_ms, at_ms, *, delta, **attributes):
    point = Point(PointKey(PREFIX + name, tuple(attributes.items())), MetricKind.SUM, value)
    return PushPoint(point, value, since_ms, at_ms, delta=delta)


class Client:
    """A producer that pushes what Java's do: a rate and a counter per broker, throttle times of the whole."""

    def __init__(self, number, client_id, user, rate, *, delta=True, brokers=(1, 2), throttled=lambda push: 0.0):
        self.id = UUID(int=number + 1)
        self.sender = AuthorizableRequestContext(
            client_id=client_id, principal=f"User:{user}", broker_id=1, cluster_id="c"
        )
        self.rate = rate
        self.delta = delta
        self.brokers = brokers
        self.throttled = throttled
        self.chance = random.Random(number)
        self.sent = dict.fromkeys(brokers, 0)

    def points(self, push):
        at_ms = BEGIN_MS + (push + 1) * EVERY_MS
        yield gauge("producer.produce.throttle.time.avg", self.throttled(push) / 2, at_ms)
        yield gauge("producer.produce.throttle.time.max", self.throttled(push), at_ms)
        yield gauge("producer.request.rate", 2.0, at_ms)
        for broker in self.brokers:
            rate = self.rate * self.chance.uniform(0.5, 1.5)
            sent = int(rate * EVERY_MS / 1000)
            self.sent[broker] += sent
            yield gauge("producer.node.outgoing.byte.rate", rate, at_ms, node_id=f"node-{broker}")
            since = at_ms - EVERY_MS if self.delta else BEGIN_MS
            value = sent if self.delta else self.sent[broker]
            name = "producer.node.outgoing.byte.total"
            yield total(name, value, since, at_ms, delta=self.delta, node_id=f"node-{broker}")

    def payload(self, push):
        return encode(list(self.points(push)), (), 0).payload


def receive(clients, pushes, sinks):
    """Send what `clients` push to `sinks`, in order of time."""
    now = [BEGIN_MS]
    fan_out = FanOut(sinks, unix_ms=lambda: now[0])
    for push in range(pushes):
        now[0] = BEGIN_MS + (push + 1) * EVERY_MS
        for client in clients:
            context = ClientTelemetryContext(EVERY_MS, client.sender)
            fan_out.export_metrics(context, ClientTelemetryPayload(client.id, False, client.payload(push)))


class ToFiles:
    """A file writer as a sink."""

    def __init__(self, writer):
        self.accept = writer.write
        self.close = lambda timeout_ms: writer.close()


FROM_THE_FUTURE = {"log.message.timestamp.after.max.ms": str(2**63 - 1)}
"""Properties of a broker that takes pushes of a made-up time, as Kafka by itself does not."""


class ToTopic:
    """What stands between a receiver and Spark: the enriched pushes, one a record."""

    def __init__(self, broker, topic):
        self.topic = topic
        self.producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "receiver"})

    def accept(self, push):
        self.producer.produce(self.topic, push.enriched, timestamp=push.received_unix_ms)

    def close(self, timeout_ms):
        assert self.producer.flush(timeout_ms / 1000) == 0
