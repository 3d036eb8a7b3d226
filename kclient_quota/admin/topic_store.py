"""Source values of `bps` and `shares` in a compacted topic of the cluster itself, the latest of each counts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kclient_quota.admin.sources import StoreDeniedError, key_of, key_record, put, records_of
from kclient_quota.admin.units import Sources
from kclient_quota.errors import ClusterError, ConfigError, misread
from kclient_quota.wire.batches import iterate_batches
from kclient_quota.wire.error_codes import RETRIABLE, ErrorCode, error_name
from kclient_quota.wire.messages import CreateTopicsRequest, FetchRequest, MetadataRequest, ProduceRequest
from kclient_quota.wire.records import Record, build_batch, iterate_records

if TYPE_CHECKING:
    from uuid import UUID

    from kclient_quota.clock import Clock
    from kclient_quota.cluster.client import ClusterClient
    from kclient_quota.wire.schema import Request

DEFAULT_TOPIC = "_kclient_quota_units"
_MAX_BYTES = 4 << 20
_REPLICAS = 3
_PAUSE_MS = 100
_RECORDS_PER_BATCH = 1_000
_ALL_REPLICAS = -1


@dataclass(frozen=True, slots=True)
class _Place:
    topic_id: UUID
    leader_id: int


class TopicStore:
    """One partition, compacted; created when there is first something to keep.

    Args:
        client: whom to ask. Reading needs READ and DESCRIBE on the topic, writing WRITE, at first CREATE.
        clock: for waits.
        timeout_ms: for each load or save.
        topic: its name.
    """

    def __init__(
        self, client: ClusterClient, clock: Clock, *, timeout_ms: int = 30_000, topic: str = DEFAULT_TOPIC
    ) -> None:
        self._client = client
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._topic = topic
        self._end_ms = 0

    def load(self) -> Sources:
        """What the topic holds; nothing when there is none yet.

        Raises:
            StoreDeniedError: the right to read it is missing.
            ClusterError: it cannot be read.
            ConfigError: a record in it is none of ours.
        """
        self._end_ms = self._clock.now_ms() + self._timeout_ms
        place = self._find()
        sources = Sources()
        if place is None:
            return sources
        for record in self._read(place):
            self._put(sources, record)
        return sources

    def save(self, before: Sources, after: Sources) -> None:
        """Append what differs.

        Raises:
            ClusterError: it cannot be written.
        """
        old, new = _by_key(before), _by_key(after)
        changed = {key: value for key, value in new.items() if old.get(key) != value}
        gone = dict.fromkeys(key for key in old if key not in new)
        records = [
            Record(None if value is None else json.dumps(value).encode(), key.encode())
            for key, value in (changed | gone).items()
        ]
        if not records:
            return
        self._end_ms = self._clock.now_ms() + self._timeout_ms
        place = self._find() or self._create()
        throttle_ms = 0
        for start in range(0, len(records), _RECORDS_PER_BATCH):
            self._wait_out(throttle_ms)
            throttle_ms = self._append(place, records[start : start + _RECORDS_PER_BATCH])
        if throttle_ms:
            self._client.close()  # the muted connection would hold up whatever is asked next

    def _put(self, sources: Sources, record: Record) -> None:
        try:
            value = None if record.value is None else float(json.loads(record.value))
            put(sources, key_of(json.loads(record.key or b"null")), value)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(
                f"topic {self._topic}: the record at offset {record.offset} is no quota source: {misread(error)}; "
                "delete it with a tombstone, or name another topic"
            ) from error

    # -- the topic

    def _find(self) -> _Place | None:
        while True:
            place, code = self._look()
            if place is not None or code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return place
            self._pause(code, "was not found")

    def _look(self) -> tuple[_Place | None, int]:
        wanted = [MetadataRequest.MetadataRequestTopic(name=self._topic)]
        (found,) = self._ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False)).topics
        if found.error_code:
            return None, found.error_code
        leader_id = next((each.leader_id for each in found.partitions if each.partition_index == 0), -1)
        if leader_id < 0:
            return None, ErrorCode.LEADER_NOT_AVAILABLE
        return _Place(found.topic_id, leader_id), 0

    def _create(self) -> _Place:
        brokers = len(self._ask(MetadataRequest(topics=[])).brokers)
        topic = CreateTopicsRequest.CreatableTopic(
            name=self._topic,
            num_partitions=1,
            replication_factor=min(_REPLICAS, brokers),
            assignments=[],
            configs=[CreateTopicsRequest.CreatableTopicConfig(name="cleanup.policy", value="compact")],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=self._left_ms())
        (made,) = self._client.ask_controller(request, timeout_ms=self._left_ms()).topics
        if made.error_code not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
            raise self._refusal(made.error_code, "was not created", made.error_message)
        while True:
            place, code = self._look()
            if place is not None:
                return place
            self._pause(
                ErrorCode.LEADER_NOT_AVAILABLE if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else code,
                "was not found",
            )

    # -- its records

    def _read(self, place: _Place) -> list[Record]:
        records: list[Record] = []
        offset = 0
        while True:
            part = self._fetch(place, offset)
            if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and part.log_start_offset > offset:
                offset = part.log_start_offset
                continue
            if part.error_code:
                self._pause(part.error_code, "was not read")
                continue
            before = offset
            data = part.records or b""
            for position, header in iterate_batches(data, partial=True):
                if not header.is_control:
                    records += [
                        each for each in iterate_records(data, position, header=header) if each.offset >= before
                    ]
                offset = header.last_offset + 1
            if offset >= part.high_watermark:
                return records
            if offset == before:  # a throttled answer is empty
                self._pause(ErrorCode.OFFSET_NOT_AVAILABLE, "was not read")

    def _fetch(self, place: _Place, offset: int) -> Any:
        partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=_MAX_BYTES)
        topic = FetchRequest.FetchTopic(topic=self._topic, topic_id=place.topic_id, partitions=[partition])
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_MAX_BYTES,
            isolation_level=1,
            topics=[topic],
            forgotten_topics_data=[],
        )
        response = self._client.ask_broker(place.leader_id, request, timeout_ms=self._left_ms())
        if response.error_code:
            raise self._refusal(response.error_code, "was not read")
        return response.responses[0].partitions[0]

    def _wait_out(self, throttle_ms: int) -> None:
        """A producer quota holds for us as well."""
        if throttle_ms >= self._left_ms():
            raise ClusterError(
                f"topic {self._topic}: a producer_byte_rate makes us wait {throttle_ms} ms, more than we may; "
                "raise the quota of this user or client-id, or keep the source values in a file (--units-store)"
            )
        self._clock.sleep_ms(throttle_ms)

    def _append(self, place: _Place, records: list[Record]) -> int:
        """Append, and how long the broker then wants to be left alone."""
        partition = ProduceRequest.PartitionProduceData(index=0, records=bytes(build_batch(records)))
        topic = ProduceRequest.TopicProduceData(name=self._topic, topic_id=place.topic_id, partition_data=[partition])
        request = ProduceRequest(acks=_ALL_REPLICAS, timeout_ms=self._left_ms(), topic_data=[topic])
        while True:
            response = self._client.ask_broker(place.leader_id, request, timeout_ms=self._left_ms())
            told = response.responses[0].partition_responses[0]
            if not told.error_code:
                return int(response.throttle_time_ms)
            self._pause(told.error_code, "was not written", told.error_message)

    def _ask(self, request: Request) -> Any:
        return self._client.ask(request, timeout_ms=self._left_ms())

    def _pause(self, code: int, what: str, message: str | None = None) -> None:
        if code not in RETRIABLE or self._left_ms() <= _PAUSE_MS:
            raise self._refusal(code, what, message)
        self._clock.sleep_ms(_PAUSE_MS)

    def _refusal(self, code: int, what: str, message: str | None = None) -> ClusterError:
        words = ": ".join(part for part in (error_name(code), message) if part)
        kind = StoreDeniedError if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else ClusterError
        return kind(
            f"topic {self._topic}, where the source values of quotas live, {what}: {words}; "
            "READ, WRITE and DESCRIBE on it are needed, or another --units-store",
            error_code=code,
        )

    def _left_ms(self) -> int:
        return max(0, self._end_ms - self._clock.now_ms())


def _by_key(sources: Sources) -> dict[str, float]:
    return {json.dumps(key_record(key), sort_keys=True): value for key, value in records_of(sources).items()}
