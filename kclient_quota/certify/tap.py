"""Notes requests as they leave the client, before a broker that mutes has read them. Pure."""

import struct
from typing import Final

from kclient_quota.certify.seen import Sent

_HEAD: Final = struct.Struct(">ih")


class Tap:
    """Listens to what clients send; `heard` is called with every chunk, in order for each connection."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self._skip: dict[int, int] = {}
        self._head: dict[int, bytes] = {}

    def heard(self, connection: int, chunk: bytes, at_ms: int) -> None:
        """`chunk` leaves the client now; `connection` is its number."""
        at = min(self._skip.get(connection, 0), len(chunk))
        self._skip[connection] = self._skip.get(connection, 0) - at
        while at < len(chunk):
            head = self._head.pop(connection, b"")
            wanted = _HEAD.size - len(head)
            head += chunk[at : at + wanted]
            at += wanted
            if len(head) < _HEAD.size:
                self._head[connection] = head
                return
            length, api_key = _HEAD.unpack(head)
            self.sent.append(Sent(at_ms, connection, api_key))
            rest = max(length - 2, 0)
            here = min(rest, max(len(chunk) - at, 0))
            self._skip[connection] = rest - here
            at += here
