"""What the application is told of statistics where a second client fetches: of both as if they were one.

The consumer's own is the member of the group and knows what is stored and committed; the other one knows ends of
partitions, and what has come. Whoever watches `consumer_lag` must not see it stand still.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from kclient_quota.clients.librdkafka.statistics import COORDINATOR, decoded

COUNTED: Final = ("tx", "tx_bytes", "rx", "rx_bytes", "rxmsgs", "rxmsg_bytes")
"""Totals of a client."""
MEMBERS_OWN: Final = ("stored_offset", "stored_leader_epoch", "committed_offset", "committed_leader_epoch")
"""What of a partition the client does not know that only fetches."""


class ToldAsOne:
    """Tells an application of both clients, when it is its turn: with very many partitions that is much work.

    Attributes:
        fetcher: the last statistics of the second client, decoded; None as long as there are none.
    """

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self.fetcher: Mapping[str, Any] | None = None
        self._end = end_key(conf)

    def tell(self, call: Callable[[str], Any], text: str) -> None:
        """Call the application with an event of the consumer's own client, and what the other one knows better."""
        call(text if self.fetcher is None else json.dumps(as_of_one(decoded(text), self.fetcher, self._end)))

    def counted(self, text: str) -> Mapping[str, Any]:
        """The same, decoded, for who adds up what connections have sent and received: those of either client count."""
        member = decoded(text)
        if self.fetcher is None:
            return member
        client = self.fetcher.get("name", "")
        others = {f"{client} {name}": broker for name, broker in self.fetcher.get("brokers", {}).items()}
        brokers = {name: {**broker, "name": name} for name, broker in others.items()}
        return {**as_of_one(member, self.fetcher, self._end), "brokers": {**member.get("brokers", {}), **brokers}}


def end_key(conf: Mapping[str, Any]) -> str:
    """Which offset of a partition is the end that a consumer with this configuration can come to."""
    return "hi_offset" if conf.get("isolation.level") == "read_uncommitted" else "ls_offset"


def as_of_one(member: Mapping[str, Any], fetcher: Mapping[str, Any], end: str) -> dict[str, Any]:
    """Statistics of the consumer's own client, with what the other one knows better.

    Args:
        member: an event of the one, decoded.
        fetcher: the last event of the other one.
        end: what `end_key` says.
    """
    mine = member.get("brokers", {})
    brokers = {**mine, **fetcher.get("brokers", {})}
    topics = dict(member.get("topics", {}))
    for name, topic in fetcher.get("topics", {}).items():
        known = topics.get(name, {})
        partitions = dict(known.get("partitions", {}))
        for number, partition in topic.get("partitions", {}).items():
            partitions[number] = _partition(partitions.get(number, {}), partition, end)
        topics[name] = {**topic, **known, "partitions": partitions}
    return {
        **member,
        **{key: member.get(key, 0) + fetcher.get(key, 0) for key in COUNTED},
        "brokers": {**brokers, COORDINATOR: mine[COORDINATOR]} if COORDINATOR in mine else brokers,
        "topics": topics,
    }


def _partition(member: Mapping[str, Any], fetcher: Mapping[str, Any], end: str) -> dict[str, Any]:
    both = {**fetcher, **{key: member[key] for key in MEMBERS_OWN if key in member}}
    stored, committed = (both.get(key, -1) for key in ("stored_offset", "committed_offset"))
    both["consumer_lag"] = _lag(both.get(end, -1), max(stored, committed))
    both["consumer_lag_stored"] = _lag(both.get(end, -1), stored)
    return both


def _lag(end: int, at: int) -> int:
    """As librdkafka's: -1 as long as either is not known."""
    return -1 if end < 0 or at < 0 else max(0, end - at)
