"""What becomes of a request: bytes, and how the connection goes on."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kclient_quota.wire.codec import Part


@dataclass(slots=True)
class Outcome:
    """What a session does once a request is through.

    Attributes:
        parts: the response frame as buffers; empty when there is no response.
        mute_ms: how long nothing more is read from the connection once the response has been written.
        late_ms: how long the response is held back, nothing being read meanwhile.
        must_close: whether the connection is closed once the response has been written.
        is_ignored: the request is never answered and nothing more is read (a test asked for that).
        written: to be called when the response has been handed to the socket, or None.
        at_ms: when it was ready.
    """

    parts: "list[Part]" = field(default_factory=list)
    mute_ms: int = 0
    late_ms: int = 0
    must_close: bool = False
    is_ignored: bool = False
    written: Callable[[], None] | None = None
    at_ms: int = 0
