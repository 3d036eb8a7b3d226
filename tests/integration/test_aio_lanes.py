"""Lanes, deadlines, newest values and tenants of an `AIOProducer`: as the synchronous one's, told by futures."""

import asyncio
import contextlib
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import KafkaException

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.aio import AIOProducer
from kclient_quota.clients.aio.buffer import MOST_REFUSED
from kclient_quota.errors import QuotaThrottledError

QUOTA = 50_000


def made(broker: EmbeddedBroker, **more: Any) -> AIOProducer:
    conf = {"bootstrap.servers": broker.bootstrap_servers, "client.id": "app", "producer_byte_rate": QUOTA, **more}
    return AIOProducer(conf, buffer_timeout=0.01)


async def fate(future: "asyncio.Future[Any]") -> str:
    """What became of a message: "ok", or the name of its error's code."""
    try:
        await future
    except KafkaException as error:
        return str(error.args[0].name())
    return "ok"


def look_at(future: "asyncio.Future[Any]") -> None:
    """So that asyncio does not tell that nobody did."""
    if not future.cancelled():
        future.exception()


async def test_an_alert_overtakes_bulk_that_is_dropped(broker: EmbeddedBroker) -> None:
    lanes = {"alerts": {"priority": "strict"}, "bulk": {"full": "drop-newest"}}
    # so little that bulk waits however slow the machine is
    more = {"quota.lanes": lanes, "quota.lane.of": lambda record: record.key, "producer_byte_rate": 20_000}
    async with made(broker, **more) as producer:
        bulk: list[asyncio.Future[Any]] = []
        overtaken = []

        async def alert() -> None:
            before = len(bulk)
            await (await producer.produce("orders", b"a" * 200, "alerts"))
            overtaken.append(sum(not future.done() for future in bulk[:before]))

        alerts = []
        for number in range(50):
            bulk += [await producer.produce("orders", b"b" * 1_000, "bulk") for _ in range(25)]
            if number >= 10:  # the first ones would meet no bulk that waits
                alerts.append(asyncio.create_task(alert()))
            await asyncio.sleep(0.05)
        await asyncio.gather(*alerts)
        assert await producer.flush(60) == 0
        became = Counter([await fate(future) for future in bulk])
    assert len(overtaken) == 40
    assert sum(count > 0 for count in overtaken) > 30
    assert set(became) == {"ok", "_QUEUE_FULL"}
    assert became["_QUEUE_FULL"] > became["ok"] > 20


async def test_what_is_not_worth_sending_any_more_costs_no_quota(broker: EmbeddedBroker) -> None:
    # Each message is a second of the quota, and worth a third of that.
    more = {"quota.message.deadline.ms": 300, "producer_byte_rate": 5_000, "quota.lanes": {"": {"full": "block"}}}
    async with made(broker, **more) as producer:
        futures = [await producer.produce("orders", b"x" * 5_000) for _ in range(8)]
        became = Counter([await asyncio.wait_for(fate(future), 30) for future in futures])
    assert set(became) <= {"ok", "_MSG_TIMED_OUT"}
    assert became["_MSG_TIMED_OUT"] >= 1
    stored = sum(request.size_bytes > 4_000 for request in broker.requests if request.api_key == 0)
    assert stored == became["ok"]


async def test_of_each_key_the_newest_value_arrives_and_every_other_is_told(broker: EmbeddedBroker) -> None:
    async with made(broker, **{"quota.lanes": {"": {"newest": True}}, "producer_byte_rate": 1_000}) as producer:
        futures = []
        for number in range(60):
            futures += [await producer.produce("orders", b"%d" % number, f"key-{key}") for key in range(10)]
            await asyncio.sleep(0.02)
        assert await producer.flush(60) == 0
        became = [await fate(future) for future in futures]
    assert set(became) == {"ok", "_PURGE_QUEUE"}
    assert became[-10:] == ["ok"] * 10


async def test_a_tenant_that_offers_a_hundred_times_more_takes_nothing_from_another(broker: EmbeddedBroker) -> None:
    more: dict[str, Any] = {"quota.lanes": {"": {"full": "drop-oldest"}}, "quota.tenant.of": lambda record: record.key}
    more["producer_byte_rate"] = 20_000
    async with made(broker, **more) as producer:
        quiet, loud = [], []
        for _ in range(60):
            loud += [await producer.produce("orders", b"x" * 300, "loud") for _ in range(100)]
            quiet.append(await producer.produce("orders", b"x" * 100, "quiet"))
            await asyncio.sleep(0.03)
        assert await producer.flush(60) == 0
        assert Counter([await fate(future) for future in quiet]) == {"ok": 60}
        became = Counter([await fate(future) for future in loud])
    assert became["_QUEUE_FULL"] > became["ok"] > 0


@pytest.mark.parametrize("who", ["lane", "tenant"])
async def test_what_waits_for_room_in_one_line_is_overtaken_by_another(broker: EmbeddedBroker, who: str) -> None:
    lanes = {"alerts": {"priority": "strict"}, "bulk": {}} if who == "lane" else {}
    more = {"quota.lanes": lanes, f"quota.{who}.of": lambda record: record.key, "producer_byte_rate": 5_000}
    async with made(broker, **more) as producer:
        bulk = []

        async def flood() -> None:
            while True:
                bulk.append(await producer.produce("orders", b"b" * 1_000, "bulk"))

        flooding = asyncio.create_task(flood())
        async with asyncio.timeout(60):
            so_far = -1
            while sum(not future.done() for future in bulk) <= 500 or so_far < len(bulk):
                so_far = len(bulk)
                await asyncio.sleep(0.1)  # until there is no room for bulk any more, not in the event loop either
        alerts = [await producer.produce("orders", b"%d" % number, "alerts") for number in range(5)]
        await asyncio.wait_for(asyncio.gather(*alerts), 60)
        waiting = sum(not future.done() for future in bulk)
        flooding.cancel()
        assert waiting > 500  # which takes two minutes
        partitions = sorted((future.result().offset(), future.result().value()) for future in alerts)
        assert [value for _, value in partitions] == [b"%d" % number for number in range(5)]
        await producer.purge()


async def test_a_line_that_gets_no_room_is_given_up_while_another_goes_on(broker: EmbeddedBroker) -> None:
    more = {"quota.lanes": {"alerts": {"priority": "strict"}, "bulk": {}}, "quota.lane.of": lambda record: record.key}
    async with made(broker, **more, **{"producer_byte_rate": 2_000, "max.block.ms": 2_000}) as producer:
        bulk = [await producer.produce("orders", b"b" * 2_000, "bulk") for _ in range(50)]
        refused, went = [], 0
        async with asyncio.timeout(120):
            while not refused or not went:
                # an alert, too, is given up when the machine stands still for as long as that
                with contextlib.suppress(QuotaThrottledError):
                    await (await producer.produce("orders", b"a" * 400, "alerts"))
                    went += 1
                refused = [future for future in bulk if future.done() and future.exception() is not None]
        assert all(isinstance(future.exception(), QuotaThrottledError) for future in refused)
        await producer.purge()


@pytest.mark.parametrize("who", ["lane", "tenant"])
async def test_nobody_waits_behind_lines_that_are_refused_however_many_those_are(
    broker: EmbeddedBroker, who: str
) -> None:
    more: dict[str, Any] = {"quota.tenant.of": lambda record: record.key}
    if who == "lane":
        more |= {"quota.lanes": {"bulk": {}, "other": {}}, "quota.lane.of": lambda record: record.key.split("-")[0]}
    async with made(broker, **more) as producer:

        async def flood(key: str) -> None:
            while True:
                # in a line that is full; nobody looks at the deliveries
                (await producer.produce("orders", b"b" * 1_000, key)).add_done_callback(look_at)

        floods = [asyncio.create_task(flood(f"bulk-{number}")) for number in range(2 * MOST_REFUSED + 8)]
        try:
            await asyncio.sleep(1)
            for _ in range(2):
                await asyncio.wait_for(await producer.produce("orders", b"o", "other-1"), 60)
        finally:
            for flooding in floods:
                flooding.cancel()
            await producer.purge()
