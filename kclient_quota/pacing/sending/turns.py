"""Messages that wait by partition, and whose turn it is: the partition's whose oldest has waited longest.

All that waits for one partition leaves together, so that it is one batch, with one header and one compressor's window.
"""

import heapq
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

ANY_PARTITION: Final = -1
"""Of messages that may go to any partition: those of a topic wait together, and a grant of them sticks to one."""

SLACK: Final = 64
"""So many that have left, and as many as wait, are carried along before they are swept out."""

Partition = tuple[str, int]
"""A topic and a partition."""


@dataclass(slots=True, eq=False)
class Waiting:
    """A message that waits to be sent.

    Attributes:
        topic: where to.
        partition: where to; ANY_PARTITION where that does not matter.
        raw_bytes: key, value, headers and what a record takes beside them, not compressed.
        queued_at_ms: since when it waits.
        payload: whatever the adapter hands over; nobody here looks into it.
        expires_at_ms: until when it is worth sending.
        lane: its lane's name.
        tenant: on whose behalf it is sent.
        key: what is compacted by, in lanes that keep the newest message of each key; None is never compacted.
    """

    topic: str
    partition: int
    raw_bytes: int
    queued_at_ms: int
    payload: Any = None
    expires_at_ms: int | None = None
    lane: str = ""
    tenant: Hashable = None
    key: Hashable = None
    home: "Line | Turns | None" = field(default=None, repr=False)  # where it waits
    is_gone: bool = field(default=False, repr=False)
    heir: "Waiting | None" = field(default=None, repr=False)  # who has taken its place

    @property
    def place(self) -> Partition:
        """Its topic and partition."""
        return self.topic, self.partition


class Line:
    """Messages in order; one of them may leave from anywhere, and another may take its place.

    Attributes:
        raw_bytes: of all that wait.
        length: how many wait.
        turn: which entry among the ages is its.
    """

    __slots__ = ("_messages", "length", "raw_bytes", "turn")

    def __init__(self) -> None:
        self._messages: deque[Waiting] = deque()
        self.turn = 0
        self.length = 0
        self.raw_bytes = 0

    def __len__(self) -> int:
        return self.length

    def append(self, message: Waiting) -> None:
        """To the end."""
        message.home = self
        self._messages.append(message)
        self.length += 1
        self.raw_bytes += message.raw_bytes

    def appendleft(self, message: Waiting) -> None:
        """To the front."""
        self._messages.appendleft(message)
        self.length += 1
        self.raw_bytes += message.raw_bytes

    def first(self) -> Waiting | None:
        """The one at the front, whatever age its place has; None when nobody waits."""
        messages = self._messages
        while messages:
            head = messages[0]
            if head.heir is not None:
                messages[0] = head.heir
            elif head.is_gone:
                messages.popleft()
            else:
                return head
        return None

    def pop(self) -> Waiting:
        """Take the one at the front."""
        head = self.first()
        if head is None:
            raise IndexError("nobody waits")
        self._messages.popleft()
        self.length -= 1
        self.raw_bytes -= head.raw_bytes
        return head

    def lose(self, message: Waiting) -> None:
        """`message`, which waits here, leaves."""
        message.is_gone = True
        self.length -= 1
        self.raw_bytes -= message.raw_bytes
        if len(self._messages) > 2 * self.length + SLACK:
            self._messages = deque(self)

    def replace(self, old: Waiting, new: Waiting) -> None:
        """`new` takes the place of `old`, and its age."""
        new.queued_at_ms = old.queued_at_ms
        new.home = old.home
        old.heir = new
        self.raw_bytes += new.raw_bytes - old.raw_bytes

    def __iter__(self) -> Iterator[Waiting]:
        for message in self._messages:
            here: Waiting | None = message
            while here is not None and here.heir is not None:
                here = here.heir
            if here is not None and not here.is_gone:
                yield here


class Turns:
    """Lines by partition, and whose turn it is.

    Attributes:
        raw_bytes: of all that wait.
        length: how many messages wait.
    """

    __slots__ = ("_ages", "_count", "_lines", "length", "raw_bytes")

    def __init__(self) -> None:
        self._lines: dict[Partition, Line] = {}
        self._ages: list[tuple[int, int, Partition]] = []  # a heap: when each line's first came, as far as is known
        self._count = 0
        self.length = 0
        self.raw_bytes = 0

    @property
    def places(self) -> int:
        """For how many partitions messages wait."""
        return len(self._lines)

    def add(self, message: Waiting) -> None:
        """`message` waits from now on."""
        line = self._line(message.place)
        line.append(message)
        message.home = self
        if line.length == 1:
            self._stand_in(line, message)
        self.length += 1
        self.raw_bytes += message.raw_bytes

    def put_back(self, message: Waiting) -> None:
        """A message that was taken waits again, before all others for its partition."""
        line = self._line(message.place)
        line.appendleft(message)
        message.home = self
        self._stand_in(line, message)
        self.length += 1
        self.raw_bytes += message.raw_bytes

    def _line(self, place: Partition) -> Line:
        line = self._lines.get(place)
        if line is None:
            line = self._lines[place] = Line()
        return line

    def _stand_in(self, line: Line, head: Waiting) -> None:
        """The line's turn comes when `head` is the oldest."""
        self._count += 1
        line.turn = self._count
        heapq.heappush(self._ages, (head.queued_at_ms, self._count, head.place))
        if len(self._ages) > 2 * len(self._lines) + SLACK:
            turns = {line.turn for line in self._lines.values()}
            self._ages = sorted(age for age in self._ages if age[1] in turns)

    def oldest(self) -> Waiting | None:
        """The first message of the line whose turn it is; None when nobody waits."""
        while self._ages:
            since_ms, turn, place = self._ages[0]
            line = self._lines.get(place)
            head = None if line is None or line.turn != turn else line.first()
            if head is None:
                heapq.heappop(self._ages)
            elif line is not None and head.queued_at_ms > since_ms:
                heapq.heappop(self._ages)
                self._stand_in(line, head)
            else:
                return head
        return None

    def plan(self, most_raw_bytes: int) -> int:
        """The raw bytes that `take` would take; 0 when nobody waits."""
        head = self.oldest()
        if head is None:
            return 0
        line = self._lines[head.place]
        if line.raw_bytes <= most_raw_bytes:
            return line.raw_bytes
        total = 0
        for message in line:
            if total and total + message.raw_bytes > most_raw_bytes:
                break
            total += message.raw_bytes
        return total

    def take(self, most_raw_bytes: int) -> list[Waiting]:
        """What leaves together: all that waits for the partition whose turn it is, at most so much, at least one."""
        head = self.oldest()
        if head is None:
            return []
        line = self._lines[head.place]
        taken: list[Waiting] = []
        total = 0
        while head is not None and (not taken or total + head.raw_bytes <= most_raw_bytes):
            total += head.raw_bytes
            taken.append(line.pop())
            head = line.first()
        self.length -= len(taken)
        self.raw_bytes -= total
        if head is None:
            del self._lines[taken[0].place]
        return taken

    def lose(self, message: Waiting) -> None:
        """`message`, which waits here, leaves."""
        line = self._lines[message.place]
        line.lose(message)
        self.length -= 1
        self.raw_bytes -= message.raw_bytes
        if not line.length:
            del self._lines[message.place]

    def replace(self, old: Waiting, new: Waiting) -> None:
        """`new` takes the place of `old`, which waits here for the same partition."""
        self._lines[old.place].replace(old, new)
        self.raw_bytes += new.raw_bytes - old.raw_bytes

    def __iter__(self) -> Iterator[Waiting]:
        for line in self._lines.values():
            yield from line
