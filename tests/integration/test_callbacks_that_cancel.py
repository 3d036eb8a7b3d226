"""A callback of an asyncio consumer that raises CancelledError cancels nobody who waits for the call."""

import asyncio
from typing import Any

import confluent_kafka.aio
import pytest

import kclient_quota
from kclient_quota.broker import EmbeddedBroker

WITHIN_S = 60


async def cancel(_consumer: Any, _partitions: Any) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("kind", [confluent_kafka.aio.AIOConsumer, kclient_quota.AIOConsumer], ids=["plain", "ours"])
async def test_a_close_is_done_whose_callback_does_so(broker: EmbeddedBroker, kind: Any) -> None:
    consumer = kind({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    await consumer.subscribe(["orders"], on_revoke=cancel)
    while not await consumer.assignment():
        await consumer.poll(0.1)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(consumer.close(), WITHIN_S)
    with pytest.raises(RuntimeError, match="closed"):
        await consumer.poll(0)
    with pytest.raises(RuntimeError, match="shutdown"):
        consumer.executor.submit(int)
