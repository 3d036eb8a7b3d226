"""Share sessions (KIP-932): what a member reads from a broker, until it ends them or its connection does."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final
from uuid import UUID

from kclient_quota.broker.groups.in_steps import Steps
from kclient_quota.broker.request.context import Alarm, ConnectionState, Scheduler
from kclient_quota.broker.request.long.letting_go import emptied
from kclient_quota.broker.shares.share_partition import SharePartition
from kclient_quota.wire.error_codes import ErrorCode

INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_LAST_EPOCH = 0x7FFFFFFF
_SESSIONS: Final = 2_000
"""Kafka's `group.share.max.share.sessions`."""
RELEASED_AT_ONCE: Final = 50
"""Where so many partitions are given back they are told of, too: some 20 ms."""

TopicPart = tuple[UUID, int]
Place = tuple[str, UUID, int]
"""A group, and a partition that it reads."""
SessionKey = tuple[int, str, str]
"""A broker, a group, and a member that reads from that broker."""


@dataclass(slots=True, eq=False)
class ShareSession:
    """What one member reads from one broker, in the order in which it is looked at."""

    connection: ConnectionState
    epoch: int = 1
    wanted: dict[TopicPart, None] = field(default_factory=dict)
    held: dict[Place, None] = field(default_factory=dict)
    """Where it has ever acquired something."""


class ShareSessions:
    """All share sessions of a cluster.

    Args:
        partitions: what groups have of partitions.
        release: called with a member and a place: what it has there is anybody's.
        keep: keeps what no request has changed.
        scheduler: time.
    """

    def __init__(
        self,
        partitions: Mapping[Place, SharePartition],
        release: Callable[[str, Place], None],
        keep: Callable[[], None],
        scheduler: Scheduler,
    ) -> None:
        self._partitions = partitions
        self._release = release
        self._keep = keep
        self._scheduler = scheduler
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._connections: dict[ConnectionState, dict[SessionKey, None]] = {}
        # members whose sessions have ended, and who may still have something
        self._ending: deque[tuple[str, ShareSession]] = deque()
        self._afterwards: deque[Steps[None]] = deque()
        self._next_turn = Alarm(scheduler, self._go_on)

    def open(
        self, broker_id: int, group_id: str, member_id: str, connection: ConnectionState
    ) -> ShareSession | ErrorCode:
        """A new session in place of the member's former one; it ends with the connection."""
        key = broker_id, group_id, member_id
        if key not in self._sessions and sum(other[0] == broker_id for other in self._sessions) >= _SESSIONS:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session = ShareSession(connection)
        if key in self._sessions:
            former = self._ended(key)
            session.held = former.held  # what the member holds it holds still
            self.afterwards(emptied(former.wanted))
        self._sessions[key] = session
        if connection not in self._connections:
            self._connections[connection] = {}
            connection.on_close.append(partial(self._abandon, connection))
        self._connections[connection][key] = None
        return session

    def resume(self, broker_id: int, group_id: str, member_id: str, epoch: int) -> ShareSession | ErrorCode:
        """The session that a request goes on with."""
        session = self._sessions.get((broker_id, group_id, member_id))
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == FINAL_EPOCH:
            return session
        if epoch != session.epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.epoch = session.epoch % _LAST_EPOCH + 1
        return session

    def has(self, broker_id: int, group_id: str, member_id: str, session: ShareSession) -> bool:
        """Whether `session` is the member's still."""
        return self._sessions.get((broker_id, group_id, member_id)) is session

    def close(self, broker_id: int, group_id: str, member_id: str) -> None:
        """A member's session ends: others may have what it has.

        Of very many partitions it is given back some in each turn, and before anybody looks at one.
        """
        if (broker_id, group_id, member_id) in self._sessions:
            self._end([(broker_id, group_id, member_id)])

    def forget(self, group_id: str) -> Steps[None]:
        """A group is no more, and nothing is to be given back."""
        for session in [self._ended(key) for key in list(self._sessions) if key[1] == group_id]:
            yield from emptied(session.wanted)
            yield from emptied(session.held)

    def release_first(self, place: Place) -> None:
        """To be called before a partition is looked at: nobody has it whose session has ended."""
        for member_id, session in self._ending:
            if place in session.held:
                del session.held[place]
                self._give_back(member_id, session, place)

    def _abandon(self, connection: ConnectionState) -> None:
        """A connection has ended, and with it the sessions that were opened on it."""
        self._end(list(self._connections[connection]))
        del self._connections[connection]
        self._keep()

    def _end(self, keys: list[SessionKey]) -> None:
        """End sessions, one after the other: of many that have little it is not all given back in one turn either."""
        is_under_way = bool(self._ending)
        self._ending += [(key[2], self._ended(key)) for key in keys]
        if not is_under_way:
            self.afterwards(self._given_back())

    def _ended(self, key: SessionKey) -> ShareSession:
        session = self._sessions.pop(key)
        self._connections[session.connection].pop(key)
        return session

    def _given_back(self) -> Steps[None]:
        seen = 0
        while self._ending:
            member_id, session = self._ending[0]
            while session.held:
                place, _ = session.held.popitem()
                kept = self._partitions.get(place)
                weight = 0 if kept is None else kept.weight
                if seen and seen + weight > RELEASED_AT_ONCE:
                    seen = 0
                    session.held[place] = None  # somebody may look at it meanwhile
                    yield
                    continue
                seen += weight
                self._give_back(member_id, session, place)
            self._ending.popleft()
            yield from emptied(session.wanted)

    def _give_back(self, member_id: str, session: ShareSession, place: Place) -> None:
        if place[1:] in session.wanted:
            self._release(member_id, place)

    # -- what goes on in later turns

    def afterwards(self, steps: Steps[None]) -> None:
        """Begin with steps now, and go on with them in the loop's next turns."""
        if any(True for _ in islice(steps, 1)):
            self._afterwards.append(steps)
            self._next_turn.set(self._scheduler.now_ms())

    def _go_on(self) -> None:
        self.afterwards(self._afterwards.popleft())
        self._keep()
        if self._afterwards:
            self._next_turn.set(self._scheduler.now_ms())
