"""Tracing agents: what they see of our Consumer is what they see of confluent_kafka's, with and without a quota."""

from typing import Any

import pytest

from tests.integration.agents_runs import printed

SCRIPT = """
import json, sys
import confluent_kafka
from confluent_kafka import TopicPartition

servers, agent, whose, limit, how, messages = json.loads(sys.argv[1])
seen = []

class BySuper(confluent_kafka.Consumer):
    def __init__(self, config):
        super().__init__(config)
        self.mine = True
    def poll(self, timeout=-1):
        message = super().poll(timeout)
        if message is not None:
            seen.append(("poll", message.offset()))
        return message
    def consume(self, num_messages=1, timeout=-1):
        found = super().consume(num_messages, timeout)
        if found:
            seen.append(("consume", [message.offset() for message in found]))
        return found
    def commit(self, *args, **kwargs):
        seen.append(("commit", sorted(kwargs)))
        return super().commit(*args, **kwargs)
    def close(self):
        seen.append(("close", None))
        return super().close()

class ByWrapping(confluent_kafka.Consumer):
    pass

def wrapped(name):
    import functools
    inner = getattr(confluent_kafka.Consumer, name)
    @functools.wraps(inner)
    def call(self, *args, **kwargs):
        found = inner(self, *args, **kwargs)
        if name != "poll" or found is not None:
            seen.append((name, found.offset() if name == "poll" else None))
        return found
    return call

def spans():
    from opentelemetry import trace
    from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
    class Noting(SpanExporter):
        def export(self, batch):
            seen.extend((span.name, span.attributes.get("messaging.kafka.message.offset"), len(span.links))
                        for span in batch if span.attributes)
            return SpanExportResult.SUCCESS
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Noting()))
    trace.set_tracer_provider(provider)
    ConfluentKafkaInstrumentor().instrument()

if agent == "super":
    confluent_kafka.Consumer = BySuper
elif agent == "wrapping":
    for name in ("poll", "commit", "close"):
        setattr(ByWrapping, name, wrapped(name))
    confluent_kafka.Consumer = ByWrapping
elif agent == "opentelemetry":
    spans()
if whose == "ours":
    from kclient_quota import Consumer
    if agent == "opentelemetry late":
        spans()
else:
    Consumer = confluent_kafka.Consumer
conf = {"bootstrap.servers": servers, "group.id": agent + whose + how, "client.id": "app", "enable.metrics.push": False}
if whose == "ours" and limit:
    conf["consumer_byte_rate"] = limit
consumer = Consumer(conf)
assert type(consumer) is Consumer
consumer.assign([TopicPartition("orders", 0, 0)])
got = []
while len(got) < messages:
    if how == "poll":
        message = consumer.poll(60)
        got.append(message.offset())
    else:
        got += [message.offset() for message in consumer.consume(messages // 2, 60)]
assert got == list(range(messages))
consumer.commit(asynchronous=False)
consumer.close()
print(json.dumps(seen))
"""


def seen_by(agent: str, servers: str, whose: str, limit: int | None, how: str) -> Any:
    return printed(SCRIPT, servers, agent, whose, limit, how)


@pytest.mark.parametrize("how", ["poll", "consume"])
@pytest.mark.parametrize("agent", ["super", "wrapping", "opentelemetry"])
def test_an_agent_that_was_there_first_sees_what_it_sees_of_the_plain_consumer(
    servers: str, agent: str, how: str
) -> None:
    if agent == "opentelemetry":
        pytest.importorskip("opentelemetry.instrumentation.confluent_kafka")
    plain = seen_by(agent, servers, "plain", None, how)
    assert plain
    for limit in (None, 20_000):
        assert seen_by(agent, servers, "ours", limit, how) == plain


@pytest.mark.parametrize("limit", [None, 20_000])
def test_an_agent_that_comes_later_breaks_nothing(servers: str, limit: int | None) -> None:
    pytest.importorskip("opentelemetry.instrumentation.confluent_kafka")
    seen_by("opentelemetry late", servers, "ours", limit, "poll")
