"""The broker's side of one connection without a socket: bytes in, requests out, answers in, bytes out.

    session = ServerSession(handle, buffers)
    view = session.get_buffer(); ...; session.received(nbytes)      # bytes in; `handle` is called with each request
    done(Outcome(parts, mute_ms=250, at_ms=now_ms))                 # an answer in, at once or at any later time
    session.output                                                  # bytes out; then session.written(now_ms)
    session.is_reading, session.resumes_ms, session.is_over         # what the owner of the socket does next

One request is taken up at a time and answered in order. While one is under way, its response is held back or not yet
written, or the connection is muted for a throttle (KIP-219: respond, then mute), `is_reading` is False, so that the
client feels it through TCP as it would with Kafka. `handle` gets whole frames and needs to know nothing of brokers: a
proxy passes on as bytes what it does not understand (`raw_request` reads the header for it).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kclient_quota.broker.network.frame_buffers import FrameBuffers
from kclient_quota.errors import WireError
from kclient_quota.wire.frame import MAX_FRAME_BYTES, RequestHeader, decode_request_header, frame_length

if TYPE_CHECKING:
    import mmap

    from kclient_quota.broker.request.outcome import Outcome

RECEIVE_BYTES = 256 * 1024
_LARGE_FRAME = 32 * 1024
_JOINED_BYTES = 64 * 1024
_LENGTH = 4
_NOTHING = memoryview(b"")


class Cancellable(Protocol):
    """A request under way."""

    def cancel(self) -> bool | None:
        """Nobody waits for the answer any more; True where it is still made, since its request is half done."""
        ...


Done = Callable[["Outcome"], None]
Handle = Callable[[memoryview, int, Done], "Cancellable | None"]
"""(the request at the start of a buffer that stays as it is until the answer, its length, to be called with the answer)
to whatever is under way, None when it has been answered already."""


def _nothing(*_: object) -> Any:
    """In place of what an owner has given, once all is over."""
    return None


class RawRequest(NamedTuple):
    """A request whose body nobody has looked into."""

    header: RequestHeader
    body: memoryview


def raw_request(frame: memoryview, length: int) -> RawRequest:
    """Header and body of a request, also of an API that nobody here knows.

    Raises:
        WireError: the header is malformed.
    """
    header, position = decode_request_header(frame, 0, length)
    return RawRequest(header, frame[position:length])


@dataclass(slots=True)
class ReceiveBuffer:
    """One buffer for all sessions of a thread: it is filled and emptied within one callback."""

    view: memoryview = field(default_factory=lambda: memoryview(bytearray(RECEIVE_BYTES)))
    frames: FrameBuffers = field(default_factory=FrameBuffers)


class ServerSession:
    """One client's connection.

    Args:
        handle: answers requests.
        receive: shared with other sessions of the thread.
        most_bytes: how large a request may be just now; asked anew for each.
        changed: called when an answer that came later has changed what is to be done.

    Attributes:
        output: buffers to be written, in order.
        resumes_ms: when `tick` is to be called (a response is held back, or the connection muted), or None.
        is_over: to be closed once everything in `output` is written.
        is_broken: to be closed at once: the client does not speak Kafka, or claims too large a request.
        is_done: the client is gone, and everything that came from it whole has been seen to.
    """

    __slots__ = (
        "_changed",
        "_filled",
        "_handle",
        "_is_busy",
        "_is_lost",
        "_is_working",
        "_large",
        "_large_end",
        "_most_bytes",
        "_outcome",
        "_receive",
        "_tail",
        "_under_way",
        "is_broken",
        "is_done",
        "is_over",
        "output",
        "resumes_ms",
    )

    def __init__(
        self,
        handle: Handle,
        receive: ReceiveBuffer,
        changed: Callable[[], None],
        most_bytes: Callable[[], int] = lambda: MAX_FRAME_BYTES,
    ) -> None:
        self._handle = handle
        self._receive = receive
        self._changed = changed
        self._most_bytes = most_bytes
        self.output: deque[memoryview] = deque()
        self.resumes_ms: int | None = None
        self.is_over = False
        self.is_broken = False
        self.is_done = False
        self._tail = _NOTHING
        self._large: mmap.mmap | None = None
        self._large_end = 0
        self._filled = 0
        self._under_way: Cancellable | None = None
        self._outcome: Outcome | None = None
        self._is_busy = False
        self._is_lost = False
        self._is_working = False

    @property
    def is_reading(self) -> bool:
        """Whether bytes may be given to it."""
        return not (self._is_busy or self.is_over or self.is_broken)

    @property
    def is_waiting_for_client(self) -> bool:
        """Whether it is the client's turn: nothing under way, held back, unwritten or muted."""
        return not self._is_busy

    # -- bytes in

    def get_buffer(self) -> memoryview:
        """Where the next bytes go: behind what is left of the last, or straight into a large frame."""
        if self._large is not None:
            return memoryview(self._large)[self._filled : self._large_end]
        tail = len(self._tail)
        view = self._receive.view
        view[:tail] = self._tail
        return view[tail:]

    def received(self, nbytes: int) -> None:
        """Bytes stand in the buffer: make requests of them."""
        if self._large is not None:
            self._filled += nbytes
            if self._filled == self._large_end:
                self._take_large()
            return
        end = len(self._tail) + nbytes
        self._tail = _NOTHING
        self._take_frames(self._receive.view, end)

    def feed(self, data: bytes) -> None:
        """The same for bytes that stand elsewhere; only while `is_reading`, the rest is kept."""
        while data and not self.is_broken:
            view = self.get_buffer()
            count = min(len(view), len(data))
            view[:count] = data[:count]
            data = data[count:]
            self.received(count)

    def _take_frames(self, view: memoryview, end: int) -> None:
        """Handle the complete frames in `view[:end]` as long as none has to wait; keep the rest."""
        position = 0
        while end - position >= _LENGTH and self.is_reading:
            try:
                length = frame_length(view, position, self._most_bytes())
            except WireError:
                self.is_broken = True
                return
            start = position + _LENGTH
            if start + length > end:
                if length > _LARGE_FRAME:
                    self._begin_large(view[start:end], length)
                    return
                break
            position = start + length
            self._take_up(view[start:position], length)
        rest = view[position:end]
        # the shared buffer will be filled by others; what has been copied out of it already is not copied again
        self._tail = memoryview(bytes(rest)) if view is self._receive.view else rest

    def _begin_large(self, received: memoryview, length: int) -> None:
        self._large = self._receive.frames.take(length)
        self._filled = len(received)
        self._large_end = length
        self._large[: self._filled] = bytes(received)

    def _take_large(self) -> None:
        buffer, length = self._large, self._large_end
        assert buffer is not None
        self._large = None
        self._take_up(memoryview(buffer)[:length], length)
        # records have been copied into a log; a request that still waits holds none
        self._receive.frames.give_back(buffer)

    def _take_up(self, frame: memoryview, length: int) -> None:
        self._is_busy = True
        self._is_working = True
        under_way = self._handle(frame, length, self._answered)
        self._is_working = False
        if self._is_busy and self._outcome is None:
            self._under_way = under_way

    # -- answers in

    def _answered(self, outcome: "Outcome") -> None:
        if self._is_lost:
            self._see_to_rest(outcome)
            return
        self._under_way = None
        if outcome.is_ignored:
            return
        self._outcome = outcome
        if outcome.late_ms > 0:
            self.resumes_ms = outcome.at_ms + outcome.late_ms
        else:
            self._put_out()
        if not self._is_working:
            self._changed()

    def _put_out(self) -> None:
        assert self._outcome is not None
        parts = self._outcome.parts
        if len(parts) > 1 and sum(map(len, parts)) <= _JOINED_BYTES:
            parts = [b"".join(parts)]
        self.output.extend(map(memoryview, parts))
        if not self.output:
            self._on_written(self._outcome.at_ms)

    # -- bytes out

    def written(self, now_ms: int) -> bool:
        """The socket has taken everything in `output`; whether that was news, so that there may be more now."""
        if self._outcome is None or self.resumes_ms is not None:
            return False
        self._on_written(now_ms)
        return True

    def _on_written(self, now_ms: int) -> None:
        outcome, self._outcome = self._outcome, None
        assert outcome is not None
        if outcome.written is not None:
            outcome.written()
        if outcome.must_close:
            self.is_over = True
        elif outcome.mute_ms > 0:
            self.resumes_ms = now_ms + outcome.mute_ms
        else:
            self._ready()

    def tick(self, now_ms: int) -> bool:
        """Time has passed; whether a throttle is over by it."""
        if self.resumes_ms is None or now_ms < self.resumes_ms:
            return False
        self.resumes_ms = None
        if self._outcome is not None:
            self._put_out()
        else:
            self._ready()
        return True

    def _ready(self) -> None:
        """Take up the next request, whether it is here already or still to come."""
        self._is_busy = False
        if self._is_working:
            return
        tail, self._tail = self._tail, _NOTHING
        if tail:
            self._take_frames(tail, len(tail))

    # -- the end

    def lost(self) -> None:
        """The client is gone: what waits is called off, what came from it whole is seen to, as by Kafka.

        Nobody is answered any more. Where the broker itself has ended the connection, nothing more is taken up.
        """
        is_ignored = self._is_busy and self._under_way is None and self._outcome is None
        if self.is_over or self.is_broken or is_ignored:
            self._tail = _NOTHING
        self._is_lost = self.is_over = True
        self.resumes_ms = None
        self.output.clear()
        self._large = None
        under_way, self._under_way = self._under_way, None
        if under_way is None or not under_way.cancel():
            self._see_to_rest(self._outcome)

    def forget(self) -> None:
        """Let go of its owner, who knows that it is done: a cycle that has grown old may never be freed."""
        self._handle = self._changed = self._most_bytes = _nothing
        self._outcome = None

    def _see_to_rest(self, outcome: "Outcome | None") -> None:
        """Take up what stands whole in the buffer, one request after the other; `outcome` is of the one before."""
        if self._is_working:
            self._outcome = outcome
            return
        while outcome is None or not outcome.must_close:
            frame = self._next_whole()
            if frame is None:
                break
            outcome, under_way = self._handled(frame)
            if outcome is None and under_way is not None and under_way.cancel():
                return
        self._tail = _NOTHING
        self.is_done = True
        self._changed()

    def _handled(self, frame: memoryview) -> "tuple[Outcome | None, Cancellable | None]":
        self._outcome, self._is_working = None, True
        under_way = self._handle(frame, len(frame), self._answered)
        self._is_working = False
        return self._outcome, under_way

    def _next_whole(self) -> memoryview | None:
        """The first request in the buffer, taken out of it, or None when it is not whole."""
        tail, start = self._tail, _LENGTH
        try:
            end = start + frame_length(tail, 0, self._most_bytes()) if len(tail) >= start else start
        except WireError:
            return None
        if not start < end <= len(tail):
            return None
        self._tail = tail[end:]
        return tail[start:end]
