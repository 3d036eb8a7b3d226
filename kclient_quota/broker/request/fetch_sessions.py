"""Fetch sessions (KIP-227): a client names what it reads once, then only what changes; so does the broker.

Follows Kafka's `FetchSession` and `FetchManager`: a session belongs to one broker and is opened by a full fetch with
epoch 0. Each further fetch says the epoch after the last and what it reads otherwise than before; the answer leaves out
partitions of which there is nothing new. Whoever returned records goes to the end, so that all get their turn.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from kclient_quota.broker.cluster_state import ClusterState
from kclient_quota.broker.request.context import AT_ONCE, Scheduler
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import FetchRequest, FetchResponse

NO_SESSION: Final = 0
INITIAL_EPOCH, FINAL_EPOCH = 0, -1
_LAST_EPOCH = 0x7FFFFFFF
SLOTS = 1_000
"""Kafka's default of `max.incremental.fetch.session.cache.slots`."""
EVICTION_MS = 120_000
"""Kafka's `min.incremental.fetch.session.eviction.ms`: sessions unused for so long give way to new ones."""

Place = tuple[str, UUID, int]
TurnAfter = Callable[[int], Awaitable[None]]
"""To be awaited with how many things are seen to next."""


class Told(NamedTuple):
    """What the client was last told of a partition."""

    high_watermark: int
    log_start_offset: int


_NOTHING_TOLD: Final = Told(-1, -1)


@dataclass(slots=True, eq=False)
class FetchSession:
    """What one client reads from one broker.

    Attributes:
        id: the client's name for it.
        epoch: which the next fetch has to say.
        wanted: what is read, in the order in which it is looked at.
        told: what the client was told of each.
        used_ms: when it was last used.
    """

    id: int
    epoch: int = 1
    wanted: dict[Place, FetchRequest.FetchPartition] = field(default_factory=dict)
    told: dict[Place, Told] = field(default_factory=dict)
    used_ms: int = 0

    async def update(self, request: FetchRequest, turn_after: TurnAfter) -> None:
        """Read what the request says beside what was read before, but for what it forgets."""
        for topic, partitions in _pieces(request.topics):
            await turn_after(len(partitions))
            self.wanted.update({(topic.topic, topic.topic_id, part.partition): part for part in partitions})
        for forgotten, indexes in _pieces(request.forgotten_topics_data):
            await turn_after(len(indexes))
            for index in indexes:
                self.wanted.pop((forgotten.topic, forgotten.topic_id, index), None)
                self.told.pop((forgotten.topic, forgotten.topic_id, index), None)

    def topics(self) -> list[FetchRequest.FetchTopic]:
        """What is read, as a full fetch would ask for it; neighbours of a topic together."""
        found: list[FetchRequest.FetchTopic] = []
        for (name, topic_id, _), partition in self.wanted.items():
            if not found or (found[-1].topic, found[-1].topic_id) != (name, topic_id):
                found.append(FetchRequest.FetchTopic(topic=name, topic_id=topic_id, partitions=[]))
            found[-1].partitions.append(partition)
        return found

    async def news(self, response: FetchResponse, session_id: int, turn_after: TurnAfter) -> FetchResponse:
        """What of an answer is new to the client, under the session's id."""
        news: dict[int, list[FetchResponse.PartitionData]] = {}
        for topic, partitions in _pieces(response.responses):
            await turn_after(len(partitions))
            news.setdefault(id(topic), []).extend(
                data for data in partitions if self._is_news((topic.topic, topic.topic_id, data.partition_index), data)
            )
        for topic in response.responses:
            topic.partitions = news.get(id(topic), [])
        response.responses = [topic for topic in response.responses if topic.partitions]
        response.session_id = session_id
        return response

    def untold(self, session_id: int) -> FetchResponse:
        """An empty answer in place of one that the client does not get; it is told everything next time."""
        self.told.clear()
        return FetchResponse(session_id=session_id)

    def _is_news(self, place: Place, data: FetchResponse.PartitionData) -> bool:
        """Whether a partition belongs into the answer; the client then knows."""
        told = Told(data.high_watermark, data.log_start_offset)
        has_records = bool(len(data.records or b""))
        if has_records and place in self.wanted:
            self.wanted[place] = self.wanted.pop(place)
        if data.error_code:
            # a client is told of an error until it has gone
            self.told.pop(place, None)
            return True
        is_known = self.told.get(place, _NOTHING_TOLD) == told
        self.told[place] = told
        return has_records or not is_known


def _pieces(topics: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Topics, and some of their partitions at a time."""
    for topic in topics:
        for start in range(0, len(topic.partitions), AT_ONCE):
            yield topic, topic.partitions[start : start + AT_ONCE]


class FetchSessions:
    """Every broker's sessions.

    Args:
        cluster: not needed; sessions are made anew with it.
        scheduler: time.
    """

    def __init__(self, cluster: ClusterState, scheduler: Scheduler) -> None:
        del cluster
        self._scheduler = scheduler
        self._sessions: dict[tuple[int, int], FetchSession] = {}
        self._last_id = 0

    async def open(self, broker_id: int, request: FetchRequest, turn_after: TurnAfter) -> FetchSession | None:
        """A session for what a full fetch reads, or None where there are too many."""
        now_ms = self._scheduler.now_ms()
        mine = [place for place in self._sessions if place[0] == broker_id]
        if len(mine) >= SLOTS:
            # the longest unused stands first
            if now_ms - self._sessions[mine[0]].used_ms <= EVICTION_MS:
                return None
            del self._sessions[mine[0]]
        self._last_id = self._last_id % _LAST_EPOCH + 1
        session = FetchSession(self._last_id, used_ms=now_ms)
        self._sessions[broker_id, session.id] = session
        await session.update(request, turn_after)
        return session

    async def resume(self, broker_id: int, request: FetchRequest, turn_after: TurnAfter) -> FetchSession | ErrorCode:
        """The session of a fetch that goes on, brought up to date; or why not."""
        place = broker_id, request.session_id
        session = self._sessions.get(place)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if request.session_epoch != session.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.epoch = session.epoch % _LAST_EPOCH + 1
        session.used_ms = self._scheduler.now_ms()
        # the longest unused stands first
        del self._sessions[place]
        self._sessions[place] = session
        await session.update(request, turn_after)
        if not session.wanted:
            self._sessions.pop(place, None)
        return session

    def give_up(self, broker_id: int, session: FetchSession) -> FetchResponse:
        """An empty answer without a session in place of one that opened it."""
        self.close(broker_id, session.id)
        return FetchResponse()

    def close(self, broker_id: int, session_id: int) -> None:
        """Forget a session; nothing if it is not there."""
        self._sessions.pop((broker_id, session_id), None)
