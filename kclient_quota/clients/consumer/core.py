"""What a consumer does about its quota, decided: when the next messages may be taken, and what its user is told.

In: bytes delivered, statistics, throttles, limits, time. Out: a grant, a wait, a notice. `pacing.fetching.fetch`
holds the law of the pace; here is which account pays for what, and what a throttle means: too many bytes, a request
quota, a batch that can never come. Has no lock and no clock: the polling thread owns it; `state()` may be asked from
any thread.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kclient_quota.clients.consumer.joining import JoinWatch, is_request_throttle
from kclient_quota.clients.consumer.reading_turns import LEAST_MS, LUMPS, Partition, ReadingTurns
from kclient_quota.clients.consumer.sizing import CROWD_WINDOWS, Sizing
from kclient_quota.clients.consumer.stall import StallWatch
from kclient_quota.clients.heartbeat import Heartbeat
from kclient_quota.clients.librdkafka.statistics import COORDINATOR, StatisticsReader
from kclient_quota.clients.limits import Limit
from kclient_quota.clients.quota_state import BrokerQuotaState
from kclient_quota.clients.throttle_log import WARN_EVERY_MS, words
from kclient_quota.config import Backoff
from kclient_quota.metrics import CONSUMER, ClientThrottleMetrics, MetricName
from kclient_quota.pacing.fetching.fetch import ONLY, RECORD_BYTES, FetchPacer
from kclient_quota.pacing.fetching.fetch_broker import EMPTY_BYTES, BrokerPace
from kclient_quota.pacing.fetching.fetch_lost import LostFetches
from kclient_quota.pacing.fetching.fetch_sizes import FetchSizes
from kclient_quota.pacing.fetching.fetch_statistics import FetchStatistics, fetch_statistics
from kclient_quota.pacing.neighbours import Neighbours

if TYPE_CHECKING:
    from confluent_kafka import Message

MOST_LATENESS_MS: Final = 600_000
"""An event that seems to have waited longer than this tells that the clock has jumped."""
REQUEST_THROTTLE_MS: Final = 1_000
"""A request quota never throttles for longer than one window."""
ENDLESS: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the user is to be told.

    Attributes:
        text: in words.
        is_warning: whether the user should do something about it.
        extra: the same as fields of a log record.
    """

    text: str
    is_warning: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)


class ConsumerCore:
    """One consumer's decisions.

    Args:
        backoff: whether to pace at all.
        client_id: for metrics and notices.
        limit: what was found before the consumer was made.
        sizes: how it fetches.
        max_poll_interval_ms: Kafka's setting of this name.
        now_ms: when it is made.
        neighbours: all consumers of the process that a broker counts together.
        longest_throttle_ms: so long a throttle counts at most, as librdkafka takes another connection.

    Attributes:
        limit: what applies now.
        notices: what is to be told, oldest first; whoever tells it takes it out.
        heartbeat: when the queue must be served whatever the quota says.
    """

    def __init__(
        self,
        backoff: Backoff,
        client_id: str,
        limit: Limit,
        sizes: FetchSizes,
        max_poll_interval_ms: int,
        now_ms: int,
        neighbours: Neighbours | None = None,
        longest_throttle_ms: float = ENDLESS,
    ) -> None:
        self.limit = limit
        self.heartbeat = Heartbeat(max_poll_interval_ms, now_ms)
        self.notices: list[Notice] = []
        self._backoff = backoff
        self._client_id = client_id
        self._pacer = FetchPacer(
            limit.byte_rate,
            sizes,
            now_ms,
            samples=limit.samples,
            window_ms=limit.window_ms,
            neighbours=None if backoff is Backoff.OFF else neighbours,
            most_unpolled_ms=self.heartbeat.most_unpolled_ms,
        )
        self._longest_throttle_ms = longest_throttle_ms
        self._sizing = Sizing(sizes, now_ms)
        self._seen: FetchStatistics | None = None
        self._turns = ReadingTurns()
        self._lost = LostFetches()
        self._forgotten: set[tuple[str, int]] = set()  # since the last statistics
        self._heard_at_ms = now_ms
        self._reader = StatisticsReader()
        self._metrics = ClientThrottleMetrics(CONSUMER, client_id)
        self._stalls: dict[int, StallWatch] = {}
        self._joining = JoinWatch(client_id)
        self._only: int | None = ONLY
        self._taken: defaultdict[int, int] = defaultdict(int)
        self._responses: Counter[int] = Counter()
        self._received: Counter[int] = Counter()  # bytes, of all clients that have fetched one after another
        self._new_limit: Limit | None = None
        self._ts_offset_ms: int | None = None
        self._said_at_ms: dict[str, int] = {}
        self._received_messages, self._said_misfit = 0, False
        self._note_limit(now_ms)

    # When the next messages may be taken ----------------------------------------------------------------------------

    @property
    def paced(self) -> bool:
        """Whether messages must wait: a limit is known or learnt, and the client's sizes let spacing follow it."""
        return self._backoff is not Backoff.OFF and self._pacer.paced and self._pacer.fits

    def grant(self, now_ms: int) -> tuple[float, int]:
        """Pay for what was charged since the last call and ask for more.

        Returns:
            bytes that may be taken now, endless without a pace, or 0 and how many milliseconds to wait.
        """
        self._apply_limit(now_ms)
        taken, self._taken = self._taken, defaultdict(int)  # quickly made
        if not self.paced:
            return ENDLESS, 0
        return self._pacer.grant(now_ms, taken)

    @property
    def grants_one(self) -> bool:
        """Whether a grant is for one message at this moment only, because batches fill much of the window."""
        return self._pacer.big_batches

    def charge(self, messages: "Sequence[Message]") -> int:
        """These have been taken out of the queue; what they cost of a grant: each is as long as its key and value."""
        cost = sum(map(len, messages)) + RECORD_BYTES * len(messages)
        self._pacer.on_messages(cost, len(messages))
        if self._only is not None:
            self._taken[self._only] += cost
            return cost
        leaders = self._pacer.leaders
        for message in messages:
            topic, partition = message.topic(), message.partition()
            if (node := leaders.get((topic or "", -1 if partition is None else partition))) is not None:
                self._taken[node] += len(message) + RECORD_BYTES
        return cost

    def most_messages(self, count: int, granted: float) -> int:
        """How many of `count` messages a grant is worth, one at least."""
        return count if granted == ENDLESS else min(count, max(1, int(granted / self._pacer.message_bytes)))

    def on_forgotten(self, nbytes: int, partitions: Collection[tuple[str, int]] | None = None) -> None:
        """What was fetched of these partitions, of all where None, is thrown away.

        Args:
            nbytes: keys and values of messages taken out of librdkafka's queue; what is in that comes on top.
            partitions: topics and numbers.
        """
        leaders = self._pacer.leaders
        # What was told as revoked is unassigned as well; nothing more is lost by that.
        gone = {each for each in (leaders if partitions is None else partitions) if each in leaders} - self._forgotten
        self._forgotten |= gone
        for each in gone:
            self._lost.add(leaders[each], nbytes / len(gone) + self._pacer.queued_bytes / len(leaders))
        if gone:
            self._pacer.forget_queue()

    # What librdkafka and the cluster say ----------------------------------------------------------------------------

    def on_statistics(self, statistics: Mapping[str, Any], now_ms: int) -> None:
        """One statistics event, decoded."""
        self.heartbeat.on_poll(now_ms)
        elapsed_ms, self._heard_at_ms = now_ms - self._heard_at_ms, now_ms
        for delta in self._reader.differences(statistics):
            if delta.name != COORDINATOR:
                # What was asked beside fetches, a dozen things while a group is joined, brings no batch.
                self._responses[delta.node_id] += max(0, min(delta.responses, delta.fetches) - delta.throttled)
                self._received[delta.node_id] += delta.response_bytes
            delta.record(self._metrics, now_ms)
        self._seen = seen = fetch_statistics(statistics, self._responses, self._made_at_ms(statistics, now_ms))
        self._sizing.look(statistics, seen, elapsed_ms)
        self._lost.on_statistics(statistics, self.sizes.fetch_bytes, self._sizing.batch_bytes)
        self._forgotten.clear()
        self._apply_limit(now_ms)
        self._pacer.on_statistics(seen, sum(self._taken.values()))
        self.heartbeat.poll_every(self._pacer.unpolled_ms)
        self._count_brokers()
        self._note_messages(int(statistics.get("rxmsgs", 0)), now_ms)
        self._note_stalls(now_ms)
        if held_up := self._joining.check(self.limit, now_ms, fetches=bool(self._pacer.leaders)):
            self._say("joining", held_up, now_ms)

    def on_throttle(
        self, broker_name: str, broker_id: int, throttle_ms: int, now_ms: int, *, fetches: bool = True
    ) -> None:
        """One throttle event; `fetches`: of the client that fetches, not of one that has done so."""
        if throttle_ms <= 0:
            return
        broker_id = self._reader.throttling(broker_id, broker_name)
        if not fetches:
            self._joining.on_throttle(throttle_ms, now_ms)
        elif is_request_throttle(throttle_ms, self.limit, fetches=bool(self._pacer.leaders)):
            self._joining.on_throttle(throttle_ms, now_ms)
            self._mute(broker_id, now_ms + throttle_ms)
        else:
            self._watch_stall(broker_id, throttle_ms, now_ms)
            self._pacer.on_throttle(broker_id, int(min(throttle_ms, self._longest_throttle_ms)), now_ms)
        self._warn_misfit(now_ms)

    def on_late_fetch(self, node: int, nbytes: int, now_ms: int) -> None:
        """A client that fetches no more has received so much: what is learnt is learnt of all that brokers count."""
        if self.limit.byte_rate is None and nbytes > EMPTY_BYTES and (pace := self._pacer.pace_of(node)):
            pace.window.received(nbytes, now_ms)

    # Which sizes fit --------------------------------------------------------------------------------------------------

    @property
    def sizes(self) -> FetchSizes:
        """How it fetches now."""
        return self._sizing.sizes

    def other_sizes(self, now_ms: int) -> FetchSizes | None:
        """The sizes to fetch in, if those that there are will not do; who fetches in them then tells `change_sizes`."""
        if self._backoff is Backoff.OFF:
            return None
        return self._sizing.other(self.limit, self._pacer.paces.values(), now_ms)

    def change_sizes(self, sizes: FetchSizes) -> None:
        """Another client fetches in these from now on."""
        self._received_messages = 0
        self._taken.clear()  # of the one before
        self._pacer.set_sizes(sizes, self._sizing.change(sizes))

    def resting(self, paused: Collection[Partition], resting: Collection[Partition], now_ms: int) -> set[Partition]:
        """The partitions of which nothing is to be fetched from now on, as others have their turns; after statistics.

        `paused` are the application's, `resting` those of which nothing is fetched now.
        """
        seen, lump_bytes = self._seen, self._sizing.lump_bytes
        rate = min((pace.rate for pace in self._pacer.paces.values()), default=0.0)
        if seen is None or not self.paced or self.sizes.by_hand or not rate or lump_bytes == ENDLESS:
            return set()
        return self._turns.look(seen, paused, resting, max(LEAST_MS, LUMPS * lump_bytes / rate * 1_000), now_ms)

    def lets_fetch_out(self, now_ms: int) -> bool:
        """Whether so much has been taken that librdkafka sends its next fetch, and may fetch all of it anew."""
        return self._pacer.is_low(sum(self._taken.values()), now_ms)

    def share_with(self, neighbours: Neighbours) -> None:
        """Another user's limit applies, which these share; what it needed those of before forget; from any thread."""
        if self._backoff is not Backoff.OFF:
            self._pacer.neighbours = neighbours

    def leave(self) -> None:
        """It fetches no more."""
        self._pacer.leave()

    def on_limit(self, limit: Limit) -> None:
        """The limit was asked for again; called from any thread, heeded at the next grant or statistics."""
        self._new_limit = limit

    def _apply_limit(self, now_ms: int) -> None:
        limit, self._new_limit = self._new_limit, None
        if limit is None:
            return
        before, self.limit = self.limit, limit
        if before.byte_rate != limit.byte_rate:
            self._pacer.set_limit(limit.byte_rate)
            self._note_limit(now_ms, before)
        self._warn_misfit(now_ms)

    def _count_brokers(self) -> None:
        """What was charged before there were two accounts goes to the first of them."""
        nodes = self._pacer.paces.keys()
        before, self._only = self._only, next(iter(nodes)) if len(nodes) == 1 else None
        if before is not None and self._only != before and before in self._taken:
            heir = self._only if self._only is not None else next(iter(nodes))
            charged = self._taken.pop(before)  # first: the heir may be the same broker, which pays once
            self._taken[heir] += charged

    def _made_at_ms(self, statistics: Mapping[str, Any], now_ms: int) -> int:
        """When an event was made, by our clock: the shortest way that one has taken is taken for no time at all."""
        made_ms = int(statistics.get("ts", 0)) // 1000
        offset_ms = now_ms - made_ms
        before_ms = self._ts_offset_ms
        if before_ms is None or not before_ms <= offset_ms <= before_ms + MOST_LATENESS_MS:
            self._ts_offset_ms = offset_ms
            return now_ms
        return made_ms + before_ms

    # What users are told --------------------------------------------------------------------------------------------

    def metrics(self, now_ms: int) -> dict[MetricName, float]:
        """Throttle times and polling by Kafka's names."""
        found = self._metrics.collect(now_ms)
        tags = (("client-id", self._client_id),)
        beat = self.heartbeat
        found[MetricName("last-poll-seconds-ago", "consumer-metrics", tags)] = beat.unpolled_ms(now_ms) / 1000
        found[MetricName("poll-headroom-ms", "consumer-metrics", tags)] = float(beat.headroom_ms(now_ms))
        stalled = sum(1 for watch in list(self._stalls.values()) if watch.stall is not None)
        lost, received, group = self._lost.total, self._received.total(), "consumer-fetch-manager-metrics"
        found[MetricName("quota-fetch-lost-bytes-total", group, tags)] = float(lost)
        found[MetricName("quota-fetch-lost-ratio", group, tags)] = min(1.0, lost / received) if received else 0.0
        found[MetricName("fetch-stalled-brokers", group, tags)] = float(stalled)
        return found

    def state(self, now_ms: int) -> dict[int, BrokerQuotaState]:
        """What is known about each broker, by its id; -1 as long as none is known."""
        return {node: self._state(node, pace, now_ms) for node, pace in list(self._pacer.paces.items())}

    def _state(self, node: int, pace: BrokerPace, now_ms: int) -> BrokerQuotaState:
        watch = self._stalls.get(node)
        stall = None if watch is None or watch.stall is None else watch.stall.words(self.limit.byte_rate)
        return BrokerQuotaState(
            limit=self.limit.byte_rate,
            source=str(self.limit.source),
            rate=pace.rate,
            throttled_until_ms=max(0, pace.throttled_until_ms - now_ms),
            admitted=self._received[node],
            outstanding=self._pacer.queued_bytes,
            stall=stall,
            lost=self._lost.by_broker.get(node, 0),
        )

    def _say(self, cause: str, text: str, now_ms: int, *, is_warning: bool = True, **extra: Any) -> None:
        if (said_at_ms := self._said_at_ms.get(cause)) is not None and now_ms - said_at_ms < WARN_EVERY_MS:
            return
        self._said_at_ms[cause] = now_ms
        fields = {"client_id": self._client_id, "consumer_byte_rate": self.limit.byte_rate, **extra}
        self.notices.append(Notice(text, is_warning, fields))

    def _note_limit(self, now_ms: int, before: Limit | None = None) -> None:
        limited = self.limit.byte_rate is not None or self.limit.request_percentage is not None
        if self._backoff is Backoff.OFF or (before is None and not limited):
            return
        what = "The consumer quota of client" if before is None else "From now on the consumer quota of client"
        text = f"{what} {self._client_id!r} is {words(self.limit)}"
        self._say(f"limit {self.limit.byte_rate}", text, now_ms, is_warning=False, limit_source=str(self.limit.source))

    def _mute(self, node: int, until_ms: int) -> None:
        """The broker answers nothing until then, which says nothing of how many bytes may be fetched."""
        if pace := self._pacer.pace_of(node):
            pace.throttled_until_ms = max(pace.throttled_until_ms, until_ms)

    def _watch_stall(self, node: int, throttle_ms: int, now_ms: int) -> None:
        pace = self._pacer.pace_of(node)
        if pace is None or (self.limit.request_percentage is not None and throttle_ms <= REQUEST_THROTTLE_MS):
            return
        if self.limit.byte_rate is None and throttle_ms <= CROWD_WINDOWS * self.limit.window_ms:
            return
        window = pace.window
        self._stalls.setdefault(node, StallWatch()).on_throttle(
            throttle_ms,
            limit=self.limit.byte_rate,
            own_bytes=window.received_total(now_ms),
            window_ms=window.size_ms(now_ms),
            least_window_ms=window.least_window_ms,
            now_ms=now_ms,
            is_shared=pace.is_shared,
        )
        self._note_stalls(now_ms)

    def _note_stalls(self, now_ms: int) -> None:
        for node, watch in self._stalls.items():
            if stall := watch.check(now_ms):
                text = f"Client {self._client_id!r}, broker {node}: {stall.words(self.limit.byte_rate)}"
                self._say(f"stall of {node}", text, now_ms, broker_id=node)

    def _note_messages(self, total: int, now_ms: int) -> None:
        if total <= self._received_messages:
            return
        self._received_messages = total
        for node, watch in self._stalls.items():
            if watch.on_messages():
                text = f"Client {self._client_id!r}, broker {node}: messages come again"
                self._say(f"end of the stall of {node}", text, now_ms, broker_id=node)

    def _warn_misfit(self, now_ms: int) -> None:
        if not self.sizes.by_hand or self._backoff is Backoff.OFF or self._pacer.fits or self._said_misfit:
            return
        self._said_misfit = True
        text = (
            f"Client {self._client_id!r} queues or fetches in sizes that its quota ({words(self.limit)}) cannot be "
            "followed with: leave queued.max.messages.kbytes and fetch.* out, then sizes that fit are chosen"
        )
        self._say("sizes", text, now_ms)
