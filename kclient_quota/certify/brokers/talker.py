"""One connection that produces, fetches and asks, and tells what it cost and how long the answer took."""

import time
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from kclient_quota.errors import ClusterError
from kclient_quota.wire.connection import Connection
from kclient_quota.wire.frame import RequestHeader, encode_request
from kclient_quota.wire.messages import FetchRequest, MetadataRequest, ProduceRequest
from kclient_quota.wire.records import Record, build_batch
from kclient_quota.wire.schema import Request

_TIMEOUT_MS = 60_000
_LENGTH_BYTES = 4
_UNKNOWN_TOPIC, _NOT_LEADER, _UNKNOWN_TOPIC_ID = 3, 6, 100
_SERVED_S = 15


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of one row.

    Attributes:
        name: as clients say it.
        topic_id: as newer ones do.
        host: of its first partition's leader.
        port: of the same.
    """

    name: str
    topic_id: UUID
    host: str
    port: int


class Told(NamedTuple):
    """An answer.

    Attributes:
        answer: the response.
        throttle_ms: its `throttle_time_ms`.
        took_ms: from sending to having it.
        nbytes: of the request, as Kafka counts it: without the length in front.
        at: when it came, in seconds of `time.monotonic`.
    """

    answer: Any
    throttle_ms: int
    took_ms: float
    nbytes: int
    at: float


class Talker:
    """A client on one connection that heeds no throttle time.

    Args:
        connection: open, or not yet.
        client_id: the connection's.
    """

    def __init__(self, connection: Connection, client_id: str) -> None:
        self._connection = connection
        self._client_id = client_id

    def ask(self, request: Request, version: int | None = None) -> Told:
        """Send a request and wait for its answer."""
        chosen = self._connection.pick_version(request) if version is None else version
        header = RequestHeader(request.__schema__.api_key, chosen, 1, self._client_id)
        nbytes = sum(len(part) for part in encode_request(request, header)) - _LENGTH_BYTES
        begin = time.monotonic()
        answer = self._connection.send(request, version=chosen, timeout_ms=_TIMEOUT_MS)
        end = time.monotonic()
        return Told(answer, answer.throttle_time_ms, (end - begin) * 1000, nbytes, end)

    def produce(self, topic: Topic, value_bytes: int, version: int | None = None) -> Told:
        """Write one record; again while a new topic is not served yet.

        Raises:
            ClusterError: it was refused.
        """
        until = time.monotonic() + _SERVED_S
        batch = bytes(build_batch([Record(value=b"x" * value_bytes)]))
        while True:
            told = self.ask(_produce(topic, batch), version)
            ((answer,),) = [row.partition_responses for row in told.answer.responses]
            if not answer.error_code:
                return told
            if answer.error_code not in {_UNKNOWN_TOPIC, _NOT_LEADER, _UNKNOWN_TOPIC_ID} or time.monotonic() > until:
                raise ClusterError(f"the record was refused: error {answer.error_code}", error_code=answer.error_code)
            time.sleep(0.05)

    def produce_unanswered(self, topic: Topic, value_bytes: int) -> None:
        """Write one record with acks=0, so that nobody says what became of it."""
        batch = bytes(build_batch([Record(value=b"x" * value_bytes)]))
        self._connection.tell(_produce(topic, batch, acks=0))

    def fetch(self, topic: Topic, offset: int, max_bytes: int = 50_000_000) -> tuple[Told, int]:
        """Read from the first partition; the answer and how many bytes of records were in it."""
        partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
        wanted = FetchRequest.FetchTopic(topic=topic.name, topic_id=topic.topic_id, partitions=[partition])
        told = self.ask(FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=max_bytes, topics=[wanted]))
        got = sum(len(partition.records or b"") for row in told.answer.responses for partition in row.partitions)
        return told, got

    def idle(self) -> Told:
        """A request that costs next to nothing."""
        return self.ask(MetadataRequest(topics=[]))

    def close(self) -> None:
        """Close the connection, whatever the broker holds against it."""
        self._connection.close()


def _produce(topic: Topic, batch: bytes, acks: int = -1) -> ProduceRequest:
    data = ProduceRequest.PartitionProduceData(index=0, records=batch)
    rows = [ProduceRequest.TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=rows)
