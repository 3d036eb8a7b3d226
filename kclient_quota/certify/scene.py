"""A scene: what is prepared, what the driver does, what is right and who says so."""

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kclient_quota.broker.server import EmbeddedBroker
from kclient_quota.certify.driver import Assignment
from kclient_quota.certify.seen import Seen
from kclient_quota.certify.verdict import Verdict

Prepare = Callable[[EmbeddedBroker, str], None]
Judge = Callable[[Seen], Verdict]


def nothing(_cluster: EmbeddedBroker, _name: str) -> None:
    """Prepares nothing."""


@dataclass(frozen=True)
class Scene:
    """One question to a client.

    Attributes:
        name: short and stable, as in tables and on the command line.
        expects: what is right, in one sentence.
        source: who says so: KIP and section, or Kafka's code.
        assignment: what the driver does.
        judge: what is made of what happened.
        prepare: called with the running cluster and the scene's name before the driver starts; the topic exists.
        meanwhile: called with the same while the driver runs.
        after_ms: how long after the driver's first word `meanwhile` is called.
        second_after_ms: how long after it the same driver is started once more beside it; None for not at all.
        afterwards: called with the same when the driver has ended, before the log is read.
        stop_after_ms: how long after it the driver is told to stop; None to wait for its end.
        stops_by: the signal that tells it to.
        within_ms: when the driver is killed.
        settle_ms: for how long after the driver's end a message may still come that it was told of as delivered.
        partitions: of the topic.
        brokers: of the cluster; each has a replica of every partition.
        filled: how many messages are in the topic beforehand, and of how many bytes; one batch holds `per_batch`.
        per_batch: messages in a batch that was there beforehand.
        broker: further arguments of `EmbeddedBroker`.
        nobody: why no other client than ours passes, quoted; empty where one does.
    """

    name: str
    expects: str
    source: str
    assignment: Assignment
    judge: Judge
    prepare: Prepare = nothing
    meanwhile: Prepare | None = None
    after_ms: int = 0
    second_after_ms: int | None = None
    afterwards: Prepare = nothing
    stop_after_ms: int | None = None
    stops_by: signal.Signals = signal.SIGTERM
    within_ms: int = 60_000
    settle_ms: int = 0
    partitions: int = 1
    brokers: int = 1
    filled: int = 0
    per_batch: int = 16
    broker: Mapping[str, Any] = field(default_factory=dict)
    nobody: str = ""
