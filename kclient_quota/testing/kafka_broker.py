"""`KafkaBroker`: the embedded broker as a test wants it, asked for what it has taken and whom it throttled."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.cluster_state import Partition
from kclient_quota.broker.request.controls import SeenRequest
from kclient_quota.errors import ConfigError
from kclient_quota.wire.batches import parse_header
from kclient_quota.wire.records import iterate_records


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """One record as it stands in a topic.

    Attributes:
        partition: where.
        offset: where in it.
        key: None when there is none.
        value: None is a tombstone.
        headers: names and values, in order.
        timestamp_ms: milliseconds since 1970.
    """

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


class KafkaBroker(EmbeddedBroker):
    """What the fixtures `kafka_broker` and `kafka_broker_factory` give; takes `EmbeddedBroker`'s arguments."""

    def records(self, topic: str, *, uncommitted: bool = False) -> list[StoredRecord]:
        """Everything in a topic now, by partition and offset; what was stored twice is there twice.

        Args:
            topic: its name.
            uncommitted: also records of transactions that were aborted or are still open.

        Raises:
            ConfigError: there is no such topic.
        """

        def read() -> list[StoredRecord]:
            topics = self._running().cluster.topics
            if topic not in topics:
                known = ", ".join(sorted(topics)) or "none"
                raise ConfigError(f"there is no topic {topic!r} (there is: {known}); has anything been written to it?")
            return [
                record
                for partition in topics[topic].partitions
                for record in _records(partition, uncommitted=uncommitted)
            ]

        return self._call(read)

    def throttled(self, client_id: str | None = None, *, api: str | None = None) -> list[SeenRequest]:
        """Answers that carried a throttle time, oldest first.

        Args:
            client_id: only this client's.
            api: only of this API, by Kafka's name, such as "Produce" or "Fetch".
        """
        return [
            request
            for request in self.requests
            if request.throttle_time_ms > 0
            and client_id in {None, request.client_id}
            and api in {None, request.api_name}
        ]

    def assert_throttled(
        self, client_id: str | None = None, *, api: str | None = None, at_least_ms: int = 1
    ) -> list[SeenRequest]:
        """Fail the test unless somebody was throttled for `at_least_ms` at once; arguments as `throttled`.

        Raises:
            AssertionError: nobody was; it says who asked for what.
        """
        found = self.throttled(client_id, api=api)
        longest = max((request.throttle_time_ms for request in found), default=0)
        assert longest >= at_least_ms, (
            f"{_who(client_id, api)} was throttled for {longest} ms at most, not for {at_least_ms}; "
            f"asked so far: {_seen(self.requests)}"
        )
        return found

    def assert_not_throttled(self, client_id: str | None = None, *, api: str | None = None) -> None:
        """Fail the test if anybody was throttled; arguments as `throttled`.

        Raises:
            AssertionError: somebody was; it says for how long.
        """
        found = self.throttled(client_id, api=api)
        longest = max((request.throttle_time_ms for request in found), default=0)
        assert not found, f"{_who(client_id, api)} was throttled {len(found)} times, for {longest} ms at most"


def _records(partition: Partition, *, uncommitted: bool) -> Iterator[StoredRecord]:
    log = partition.log
    end = log.end_offset if uncommitted else log.last_stable_offset
    aborted = [] if uncommitted else log.transactions.aborted_between(log.start_offset, end)
    for batch in log.batches():
        header = parse_header(batch)
        hidden = any(
            gone.producer_id == header.producer_id and gone.first_offset <= header.base_offset <= gone.last_offset
            for gone in aborted
            if header.is_transactional
        )
        if header.is_control or hidden:
            continue
        for record in iterate_records(batch, header=header):
            if log.start_offset <= record.offset < end:
                headers = tuple(record.headers)
                yield StoredRecord(
                    partition.index, record.offset, record.key, record.value, headers, record.timestamp_ms
                )


def _who(client_id: str | None, api: str | None) -> str:
    who = "nobody" if client_id is None else f"client {client_id!r}"
    return f"{who} ({api})" if api else who


def _seen(requests: Sequence[SeenRequest]) -> str:
    counted: dict[str, int] = {}
    for request in requests:
        name = f"{request.api_name} of {request.client_id!r}"
        counted[name] = counted.get(name, 0) + 1
    return ", ".join(f"{name} ({count})" for name, count in sorted(counted.items())) or "nothing"
