"""One connection to a broker that speaks our wire codec, for tests that look at single answers."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kclient_quota.wire.codec import decode
from kclient_quota.wire.frame import RequestHeader, decode_response_header, encode_request, response_header_version
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


@contextmanager
def connected(cluster: Any, client_id: str = "contract") -> Iterator[Wire]:
    host, _, port = cluster.bootstrap_servers.split(",")[0].rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection:
        yield Wire(connection, client_id)
