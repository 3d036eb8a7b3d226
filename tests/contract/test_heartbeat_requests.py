"""A group under a request quota of one percent keeps every member; on both brokers, in both protocols."""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka.admin import AdminClient

from kclient_quota.clients.consumer import Consumer

Unique = Callable[[str], str]
CLASSIC = {"session.timeout.ms": 9_000, "heartbeat.interval.ms": 500}
KEEP_S = 14
"""Longer than a session: who is not heard of is put out."""


class Member:
    """One of two that share two partitions; it notes what it is given and what is taken from it."""

    def __init__(self, conf: dict[str, Any], topic: str) -> None:
        self.moves: list[tuple[str, int]] = []
        self.held = 0
        self._topic = topic
        self._stop = threading.Event()
        self._consumer = Consumer(conf)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        said = {f"on_{what}": partial(self._note, what) for what in ("assign", "revoke", "lost")}
        self._consumer.subscribe([self._topic], **said)
        while not self._stop.is_set():
            self._consumer.poll(0.1)
        self._consumer.close()

    def _note(self, what: str, _consumer: Any, partitions: list[Any]) -> None:
        if partitions:
            self.held += len(partitions) if what == "assign" else -len(partitions)
            self.moves.append((what, len(partitions)))

    def close(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_a_request_quota_of_one_percent_keeps_every_member(cluster: Any, unique: Unique) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    groups: dict[str, list[Member]] = {}
    try:
        for protocol in ("classic", "consumer"):
            topic, app = unique(f"orders-{protocol}"), unique(f"app-{protocol}")
            cluster.create_topic(topic, 2)
            cluster.set_quota(client_id=app, request_percentage=1)
            conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": app, "group.id": app}
            conf |= {"group.protocol": protocol, "max.poll.interval.ms": 12_000, "enable.metrics.push": False}
            conf |= CLASSIC if protocol == "classic" else {}
            groups[app] = [Member(conf, topic) for _ in range(2)]
        members = [member for group in groups.values() for member in group]
        end = time.monotonic() + 60
        while any(member.held != 1 for member in members):
            assert time.monotonic() < end, [member.moves for member in members]
            time.sleep(0.05)
        before = [list(member.moves) for member in members]
        assert "lost" not in {what for moves in before for what, _ in moves}
        time.sleep(KEEP_S)
        assert [member.moves for member in members] == before
        # who is put out may be the last to hear of it
        for app, future in admin.describe_consumer_groups(list(groups), request_timeout=60).items():
            assert (app, len(future.result(60).members)) == (app, 2)
    finally:
        for group in groups.values():
            for member in group:
                member.close()
