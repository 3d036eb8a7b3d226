"""AIOConsumer beside OpenTelemetry's instrumentation, and with a token that cannot be had."""

import base64
import json
import time
from typing import Any

import confluent_kafka
import confluent_kafka.aio
import pytest
from confluent_kafka import KafkaException

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.security.bearer_tokens import TokenRules
from kclient_quota.clients.aio import AIOConsumer
from tests.integration.agents_runs import printed

SCRIPT = """
import asyncio, json, sys

servers, when, whose, limit, how, messages = json.loads(sys.argv[1])
spans = []

def instrument():
    from opentelemetry import trace
    from opentelemetry.instrumentation.confluent_kafka import ConfluentKafkaInstrumentor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
    class Noting(SpanExporter):
        def export(self, batch):
            spans.extend((s.name, s.attributes.get("messaging.kafka.message.offset")) for s in batch if s.attributes)
            return SpanExportResult.SUCCESS
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(Noting()))
    trace.set_tracer_provider(provider)
    ConfluentKafkaInstrumentor().instrument()

if when == "first":
    instrument()
if whose == "ours":
    from kclient_quota.clients.aio import AIOConsumer
else:
    from confluent_kafka.aio import AIOConsumer
if when == "late":
    instrument()

async def main():
    conf = {"bootstrap.servers": servers, "group.id": when + whose + how + str(limit), "client.id": "app",
            "auto.offset.reset": "earliest", "enable.metrics.push": False}
    if whose == "ours" and limit:
        conf["consumer_byte_rate"] = limit
    consumer = AIOConsumer(conf)
    await consumer.subscribe(["orders"])
    got = []
    while len(got) < messages:
        if how == "poll":
            message = await consumer.poll(60)
            got.append(message.offset())
        else:
            got += [message.offset() for message in await consumer.consume(messages // 2, 60)]
    assert got == list(range(messages)), got
    (committed,) = await consumer.commit(asynchronous=False)
    assert committed.offset == messages
    await consumer.close()

asyncio.run(main())
print(json.dumps(spans))
"""


def spans_of(servers: str, when: str, whose: str, limit: int | None, how: str) -> Any:
    return printed(SCRIPT, servers, when, whose, limit, how)


@pytest.mark.parametrize("how", ["poll", "consume"])
def test_instrumentation_sees_of_ours_what_it_sees_of_confluent_kafkas(servers: str, how: str) -> None:
    pytest.importorskip("opentelemetry.instrumentation.confluent_kafka")
    plain = spans_of(servers, "first", "plain", None, how)
    assert plain
    for limit in (None, 20_000):
        assert spans_of(servers, "first", "ours", limit, how) == plain


@pytest.mark.parametrize("how", ["poll", "consume"])
def test_instrumentation_that_comes_later_breaks_nothing(servers: str, how: str) -> None:
    pytest.importorskip("opentelemetry.instrumentation.confluent_kafka")
    spans_of(servers, "late", "ours", 20_000, how)


def refuses(_conf: str) -> Any:
    raise ValueError("no token")


async def test_a_failing_oauth_callback_raises_what_it_raises_with_confluent_kafkas() -> None:
    conf = {
        "bootstrap.servers": "127.0.0.1:1",
        "group.id": "g",
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "OAUTHBEARER",
        "oauth_cb": refuses,
    }
    with pytest.raises(KafkaException) as plain:
        confluent_kafka.aio.AIOConsumer(conf)
    with pytest.raises(KafkaException) as ours:
        AIOConsumer(conf)
    assert ours.value.args[0].code() == plain.value.args[0].code()


def unsecured() -> str:
    def encoded(part: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()

    return f"{encoded({'alg': 'none'})}.{encoded({'sub': 'alice', 'exp': time.time() + 600})}."


async def test_a_token_that_cannot_be_renewed_is_told_and_what_was_sent_is_received() -> None:
    """The first token lasts for seconds; when it is to be renewed there is none, until there is again."""
    asked: list[float] = []
    refused: list[float] = []

    def gives(_conf: str) -> tuple[str, float]:
        asked.append(time.monotonic())
        if len(asked) == 2:
            refused.append(asked[-1])
            raise ValueError("no token")
        return unsecured(), time.time() + (3 if len(asked) == 1 else 600)

    with EmbeddedBroker(topics={"orders": 1}, oauth=TokenRules(is_unsecured=True)) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        producer.produce("orders", b"x")
        assert producer.flush(60) == 0
        conf = {
            "bootstrap.servers": cluster.sasl_bootstrap_servers,
            "group.id": "g",
            "client.id": "app",
            "auto.offset.reset": "earliest",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanisms": "OAUTHBEARER",
            "oauth_cb": gives,
        }
        async with AIOConsumer(conf) as consumer:
            await consumer.subscribe(["orders"])
            first = await consumer.poll(60)
            deadline = time.monotonic() + 60
            while not refused and time.monotonic() < deadline:
                failed = await consumer.poll(0.2)
                assert failed is None or failed.error() is not None
            producer.produce("orders", b"y")
            assert producer.flush(60) == 0
            deadline = time.monotonic() + 60
            while (second := await consumer.poll(60)) is not None and second.error() is not None:
                assert time.monotonic() < deadline
    assert (first.value(), second.value()) == (b"x", b"y")
    assert refused, "the callback was to fail"
