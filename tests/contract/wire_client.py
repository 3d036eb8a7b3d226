"""One connection to a broker that speaks our wire codec, for tests that look at single answers."""

import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka.admin import AdminClient, NewTopic

from kclient_quota.wire.codec import decode
from kclient_quota.wire.frame import RequestHeader, decode_response_header, encode_request, response_header_version
from kclient_quota.wire.messages import API, ListOffsetsRequest, ListOffsetsResponse
from kclient_quota.wire.schema import Request, Response

R = TypeVar("R", bound=Response)


class Wire:
    """One connection, one request at a time."""

    def __init__(self, connection: socket.socket, client_id: str) -> None:
        self._connection = connection
        self._client_id = client_id

    def send(self, request: Request, version: int) -> int:
        """Sends a request; its size as Kafka counts it, without the length in front."""
        header = RequestHeader(type(request).__schema__.api_key, version, 7, self._client_id)
        frame = b"".join(bytes(part) for part in encode_request(request, header))
        self._connection.sendall(frame)
        return len(frame) - 4

    def receive(self, kind: type[R], version: int) -> R:
        (length,) = struct.unpack(">i", self._exactly(4))
        body = self._exactly(length)
        key = kind.__schema__.api_key
        header, start = decode_response_header(body, response_header_version(key, version))
        assert header.correlation_id == 7
        return decode(kind, version, body, start)

    def ask(self, request: Request, kind: type[R], version: int) -> R:
        self.send(request, version)
        return self.receive(kind, version)

    def send_bytes(self, frame: bytes) -> None:
        """Sends what no request of ours would be."""
        self._connection.sendall(frame)

    def _exactly(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self._connection.recv(size - len(found))
            assert piece, "the broker closed the connection"
            found += piece
        return found


def ask(wire: Wire, request: Request, version: int) -> Any:
    """Sends a request; its answer."""
    return wire.ask(request, API[type(request).__schema__.api_key].response, version)


@contextmanager
def connected(cluster: Any, client_id: str = "contract", servers: str | None = None) -> Iterator[Wire]:
    host, _, port = (servers or cluster.bootstrap_servers).split(",")[0].rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        yield Wire(connection, client_id)


def create_topic(cluster: Any, topic: str) -> None:
    """Creates a topic of one partition and waits until its leader serves it, which is later than the answer."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[partition])
    deadline = time.monotonic() + 60
    with connected(cluster) as wire:
        while True:
            answer = wire.ask(ListOffsetsRequest(replica_id=-1, topics=[asked]), ListOffsetsResponse, 7)
            error = answer.topics[0].partitions[0].error_code
            if error == 0:
                return
            assert time.monotonic() < deadline, f"{topic} is not served: error {error}"
            time.sleep(0.02)
