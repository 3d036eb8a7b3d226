"""A group under a request quota of one percent keeps every member; on both brokers, in both protocols."""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from kclient_quota.clients.consumer import Consumer

Unique = Callable[[str], str]
CLASSIC = {"session.timeout.ms": 12_000, "heartbeat.interval.ms": 500}
JOIN_S, KEEP_S = 13, 7


def test_a_request_quota_of_one_percent_keeps_every_member(cluster: Any, unique: Unique) -> None:
    moves: dict[str, list[tuple[str, int, float]]] = {"classic": [], "consumer": []}
    begin = time.monotonic()

    def note(protocol: str, what: str, _consumer: Any, partitions: list[Any]) -> None:
        if time.monotonic() - begin < JOIN_S + KEEP_S:
            moves[protocol].append((what, len(partitions), time.monotonic() - begin))

    def poll(protocol: str, member: Consumer, topic: str) -> None:
        said = {f"on_{what}": partial(note, protocol, what) for what in ("assign", "revoke", "lost")}
        member.subscribe([topic], **said)
        while time.monotonic() - begin < JOIN_S + KEEP_S:
            member.poll(0.1)
        member.close()

    threads = []
    for protocol in moves:
        topic, app = unique(f"orders-{protocol}"), unique(f"app-{protocol}")
        cluster.create_topic(topic, 2)
        cluster.set_quota(client_id=app, request_percentage=1)
        conf = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": app, "group.id": app}
        conf |= {"group.protocol": protocol, "max.poll.interval.ms": 12_000, "enable.metrics.push": False}
        for _ in range(2):
            member = Consumer({**conf, **(CLASSIC if protocol == "classic" else {})})
            threads.append(threading.Thread(target=poll, args=(protocol, member, topic), daemon=True))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(JOIN_S + KEEP_S + 60)
    assert not any(thread.is_alive() for thread in threads)
    for protocol, seen in moves.items():
        gained = sum(count for what, count, _ in seen if what == "assign")
        given = sum(count for what, count, _ in seen if what == "revoke")
        assert (protocol, gained - given) == (protocol, 2)
        assert [move for move in seen if move[0] == "lost" or (move[1] and move[2] > JOIN_S)] == [], protocol
