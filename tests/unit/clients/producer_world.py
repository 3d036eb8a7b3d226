"""A producer's core without a producer."""

import threading
from types import SimpleNamespace
from typing import Any

from kclient_quota.clients.librdkafka.partitioner import Partitioner
from kclient_quota.clients.limits import Limit
from kclient_quota.clients.producer.core import ProducerCore
from kclient_quota.clients.producer.outbox import Handed, Outbox
from kclient_quota.clients.producer.routes import Routes
from kclient_quota.clients.producer.sender.sender import Sender
from kclient_quota.clients.throttle_log import WorthLog
from kclient_quota.config import LimitSource
from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.send_pace import SendPace
from kclient_quota.pacing.sending.send_queue import SendQueue
from kclient_quota.pacing.sending.turns import Waiting
from kclient_quota.testing.clock import ManualClock

NONE = Limit(None, None, LimitSource.CLUSTER)
LIMITED = Limit(50_000, None, LimitSource.CLUSTER, "{client-id=app}")


def core_of(limit: Limit, max_delay_ms: int = 1_000) -> ProducerCore:
    """One that makes its queues as producers do."""

    def new_queue(_broker: int, of: Limit) -> SendQueue:
        return SendQueue(SendPace(Pacer(of.byte_rate), limit=of.byte_rate, max_delay_ms=max_delay_ms))

    return ProducerCore(new_queue, Routes(Partitioner()), limit, max_delay_ms)


def hand(outbox: Outbox, core: ProducerCore, now_ms: int) -> None:
    """What a sender does with notices."""
    while outbox.notices:
        outbox.notices.popleft()(core, now_ms)


def message(size: int, now_ms: int, *, key: str | None = None, partition: int = -1, topic: str = "orders") -> Waiting:
    """One that waits."""
    return Waiting(topic, partition, size, now_ms, Handed(b"", key, partition, None, 0, None))


def sender_of(core: Any) -> Sender:
    transaction: Any = SimpleNamespace(lost=None, possible=False, is_late=lambda _now_ms: False)
    metrics: Any = SimpleNamespace(lanes=[""], on_sent=lambda *_: None, on_lost=lambda *_: None)
    return Sender(
        Outbox(),
        core,
        transaction,
        clock=ManualClock(0),
        lock=threading.RLock(),
        metrics=metrics,
        worth=WorthLog("app", "none", 1_000),
    )
