"""The scenes that `benchmarks.laws` plays."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean
from typing import Final

from benchmarks.after_light_use import Light
from benchmarks.share_bound import bound, counted_bytes, played
from kclient_quota.pacing.fetching.fetch_sizes import LUMP, framing_bytes, sizes_for
from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.spare import Spare
from kclient_quota.quota.rate import SampledRate
from kclient_quota.quota.throttle import throttle_time_ms
from kclient_quota.simulation import Change, Network, Scenario, figures, parts, simulate
from kclient_quota.simulation.batching import Batching, ideal
from kclient_quota.simulation.sending import Cell, SendingWorld

SEEDS: Final = (1, 2)
OTHER_SEEDS: Final = (3, 4)
"""What a scene differs by with these is chance."""
MESSAGE_BYTES: Final = 1_000
BROKEN: Final = 1.0
"""What a bound counts for that `tests/grids` holds and that is not kept."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What came of a scene.

    Attributes:
        utilisation: part of the quota used; of what is possible at best, where that is known.
        jain: fairness; 1 is equal shares. Beside plain clients: what ours have of an equal share, 1 at most.
        p99_s: throttle time of all responses; of the send queue: how late messages are.
        settles_s: after the last change, or the start.
    """

    utilisation: float
    jain: float = 1.0
    p99_s: float = 0.0
    settles_s: float = 0.0

    @property
    def badness(self) -> float:
        """What is unused, unfair, throttled and unsettled, in parts; over-use is as bad as what is unused."""
        return abs(1 - self.utilisation) + (1 - self.jain) + self.p99_s / 10 + self.settles_s / 300

    def __str__(self) -> str:
        return f"{self.utilisation:.3f}, {self.jain:.3f}, {self.p99_s:.2f} s, {self.settles_s:.0f} s"


@dataclass(frozen=True, slots=True)
class Shared:
    """A share consumer whose batches are large beside the quota.

    Attributes:
        byte_rate: the quota.
        records: in a batch, of 1 kB.
        busy_ms: how long the application is after each.
    """

    byte_rate: int
    records: int
    busy_ms: int = 0


@dataclass(frozen=True, slots=True)
class Fetched:
    """Fetches of the sizes that are chosen for a limit, from a log of exponentially spread batches.

    Attributes:
        byte_rate: the quota.
        round_trip_ms: to the broker.
        batch_bytes: on average.
        partitions: that every response names.
    """

    byte_rate: float
    round_trip_ms: float
    batch_bytes: int
    partitions: int = 1


@dataclass(frozen=True, slots=True)
class Spared:
    """A producer that needs most of a large quota, but not all.

    Attributes:
        byte_rate: the quota.
        part: what it has to send, of the quota.
        every_ms: at once, so often.
    """

    byte_rate: float
    part: float
    every_ms: int


@dataclass(frozen=True, slots=True)
class Untold:
    """A producer alone whose broker counts more than it knows of: a proxy repacks its batches, say.

    Attributes:
        byte_rate: the quota.
        part: of what is sent, that comes on top.
    """

    byte_rate: int
    part: float


@dataclass(frozen=True, slots=True)
class Scene:
    """What is played, and what `tests/grids` demands of it.

    Attributes:
        what: as above.
        used: the least utilisation.
        jain: the least.
        p99_s: the most.
        settles_s: the most.
    """

    what: Scenario | Cell | Shared | Fetched | Spared | Untold | Light
    used: float = 0.0
    jain: float = 0.0
    p99_s: float = inf
    settles_s: float = inf

    def figure(self, seeds: Sequence[int] = SEEDS) -> Figure:
        """Played."""
        if isinstance(self.what, Scenario):
            return _fleet(self.what, seeds)
        if isinstance(self.what, Cell):
            return _sent(self.what, seeds[0])
        if isinstance(self.what, Shared):
            return _shared(self.what)
        if isinstance(self.what, Light):
            least, throttle_ms = self.what.played()
            return Figure(least, p99_s=throttle_ms / 1000)
        if isinstance(self.what, Untold):
            return _untold(self.what)
        return _fetched(self.what) if isinstance(self.what, Fetched) else _spared(self.what)

    def badness(self, figure: Figure) -> float:
        """The figure's, and more where a bound is broken."""
        kept = figure.utilisation >= self.used and figure.jain >= self.jain
        kept = kept and figure.p99_s <= self.p99_s and figure.settles_s <= self.settles_s
        return figure.badness + (0.0 if kept else BROKEN)


def _fleet(scenario: Scenario, seeds: Sequence[int]) -> Figure:
    where = parts(scenario)
    found = [
        figures(scenario, [simulate(scenario, part, random.Random(f"{seed}/{part.brokers}")) for part in where])
        for seed in seeds
    ]
    settled = [each.settling[-1].after_ms if each.settling else 0 for each in found]
    equal = scenario.clients / (scenario.clients + scenario.plain)
    fair = [each.jain if each.plain is None else min(1.0, (1 - each.plain.used) / equal) for each in found]
    return Figure(
        fmean(each.utilisation for each in found),
        fmean(fair),
        max(each.throttle_p99_ms for each in found) / 1000,
        fmean(scenario.seconds if after_ms is None else after_ms / 1000 for after_ms in settled),
    )


def _sent(cell: Cell, seed: int) -> Figure:
    sent = SendingWorld(cell, random.Random(seed)).run()
    best = ideal(cell.batching, cell.quota, max(cell.partitions, 1), cell.max_delay_ms).messages_per_s
    longest_ms = max((throttle_ms for _, throttle_ms in sent.throttles), default=0)
    return Figure(sent.messages_per_s / best, p99_s=(sent.latency_ms() + longest_ms) / 1000)


def _shared(shared: Shared) -> Figure:
    batch = counted_bytes(shared.records)
    came = played(batch, shared.byte_rate, 5, busy_ms=shared.busy_ms)
    return Figure(came.part / bound(batch, shared.byte_rate), p99_s=came.refused / 10)


def _fetched(fetched: Fetched) -> Figure:
    """What of the quota is payload, and how far it keeps up."""
    rate = fetched.byte_rate
    sizes = sizes_for(rate, fetched.round_trip_ms, fetched.batch_bytes, partitions=fetched.partitions)
    chance = random.Random(1)
    batches = [max(80, round(chance.expovariate(1 / fetched.batch_bytes))) for _ in range(4_000)]
    used, brought = fetched_parts(sizes.fetch_bytes, batches, framing_bytes(fetched.partitions))[1:]
    longest = max(sizes.fetch_bytes, fetched.batch_bytes)
    keeps_up = min(1.0, brought / (rate * fetched.round_trip_ms / 1000))
    return Figure(used * keeps_up * (1 - longest / LUMP / rate), p99_s=sizes.queue_bytes / rate)


def _untold(untold: Untold) -> Figure:
    """What of the quota is used, by the broker's count, from the second minute on."""
    pacer, broker = Pacer(untold.byte_rate), SampledRate()
    size = MESSAGE_BYTES * (1 + untold.part)
    requests, throttles_ms = 0, []
    muted_until_ms = 0
    for now_ms in range(0, 180_000, 5):
        full = pacer.request_bytes
        while now_ms >= muted_until_ms and pacer.admit_at_ms(MESSAGE_BYTES, now_ms, full_bytes=full) <= now_ms:
            full = 0  # the rest of a request follows
            pacer.on_sent(MESSAGE_BYTES, now_ms)
            broker.record(size, now_ms)
            throttle_ms = throttle_time_ms(broker.measure(now_ms), untold.byte_rate, broker.window_size_ms(now_ms))
            pacer.on_throttle(throttle_ms, now_ms)
            pacer.on_success(MESSAGE_BYTES, now_ms)
            muted_until_ms = now_ms + throttle_ms
            if now_ms >= 60_000:
                requests += 1
                throttles_ms.append(throttle_ms)
    used = requests * size / (untold.byte_rate * 120)
    return Figure(used, p99_s=sorted(throttles_ms)[int(0.99 * requests)] / 1000)


def _spared(spared: Spared) -> Figure:
    """What part of the bytes passes without the queue."""
    spare = Spare()
    spare.set_limit(spared.byte_rate, 1)
    given = left = queued = passed = has = 0.0
    for now_ms in range(0, 60_000, 100):
        given = spare.step(now_ms, left, int(queued), may=True)
        has += spared.byte_rate * spared.part * spared.every_ms / 1000 if now_ms % spared.every_ms == 0 else 0.0
        now = min(max(given, 0.0), has)
        passed, left = passed + now, given - now
        queued = min(has - now, spared.byte_rate / 10)
        has -= now + queued
    return Figure(passed / (spared.byte_rate * spared.part * 60))


def fetched_parts(fetch_bytes: int, batches: Sequence[int], framing: int) -> tuple[float, float, float]:
    """What part of the bytes sent is thrown away, what is neither that nor framing, and bytes a fetch.

    The first batch of a fetch comes whole, and a later one that exceeds the limit in part.
    """
    sent = lost = used = fetches = 0
    whole = 0  # of the fetch that is on its way
    for batch in batches:
        if whole and whole + batch > fetch_bytes:
            lost += max(0, fetch_bytes - whole)
            sent += max(fetch_bytes, whole) + framing
            used += whole
            fetches += 1
            whole = 0
        whole += batch
    return lost / sent, used / sent, used / fetches


FAR: Final = Network(round_trip_ms=80, linger_ms=5)
KNOWN: Final = {
    "1 alone, 51,200 B/s": Scene(Scenario(quota=51_200, seconds=90)),
    "1 alone that wakes late": Scene(Scenario(quota=51_200, seconds=90, network=Network(wake_ms=100))),
    "1 alone, 20 kB messages": Scene(Scenario(quota=51_200, seconds=90, message_bytes=20_000)),
    "1 alone with jitter": Scene(Scenario(quota=51_200, seconds=90, network=Network(jitter_ms=30))),
    "4 that wake late": Scene(Scenario(clients=4, quota=51_200, seconds=90, network=Network(wake_ms=60))),
    "4, 20 kB messages": Scene(Scenario(clients=4, quota=102_400, seconds=90, message_bytes=20_000)),
    "2 that want little, 2 all": Scene(Scenario(clients=4, quota=102_400, seconds=90, demands=(10_000.0, inf))),
    "2 at 51,200 B/s": Scene(Scenario(clients=2, quota=51_200)),
    "8 at 51,200 B/s": Scene(Scenario(clients=8, quota=51_200), used=0.95, jain=0.99, p99_s=0.5),
    "1, then 7 come": Scene(Scenario(clients=1, quota=1_048_576, changes=(Change(40_000, 7),), seconds=90)),
    "3 % that nobody told of, 51,200 B/s": Scene(Untold(51_200, 0.03)),
    "3 % that nobody told of, 1 MiB/s": Scene(Untold(1_048_576, 0.03)),
    "8, then 7 go": Scene(Scenario(clients=8, quota=1_048_576, changes=(Change(40_000, -7),), seconds=90)),
}
LEARNT: Final = {
    "1 alone, 1 MiB/s": Scene(Scenario(told=False)),
    "1 alone with jitter": Scene(
        Scenario(quota=51_200, told=False, seconds=180, warm_up_ms=60_000, network=Network(jitter_ms=5, wake_ms=3)),
        used=0.97,
    ),
    "2 at 51,200 B/s": Scene(Scenario(clients=2, quota=51_200, told=False)),
    "8 at 51,200 B/s": Scene(Scenario(clients=8, quota=51_200, told=False)),
    "8 at 50 MiB/s": Scene(Scenario(clients=8, quota=52_428_800, told=False, seconds=90)),
    "32 at 51,200 B/s": Scene(Scenario(clients=32, quota=51_200, told=False, warm_up_ms=60_000), used=0.95, jain=0.9),
    "8 at 1 MiB/s, then 7 go": Scene(Scenario(clients=8, told=False, changes=(Change(50_000, -7),), seconds=90)),
    "4 at 50 MiB/s, then 4 come": Scene(
        Scenario(
            clients=4,
            quota=52_428_800,
            told=False,
            seconds=180,
            warm_up_ms=60_000,
            changes=(Change(120_000, 4),),
        ),
        settles_s=35,
    ),
    "1 at 51,200 B/s, then 7 come": Scene(
        Scenario(quota=51_200, told=False, seconds=180, warm_up_ms=60_000, changes=(Change(120_000, 7),)),
        settles_s=35,
    ),
}
FETCHES: Final = {
    "1 alone": Scene(Scenario(consume=True, quota=100_000, seconds=90)),
    "1 alone, 100 kB batches": Scene(Scenario(consume=True, quota=100_000, batch_messages=100, seconds=90)),
    "4 at 100,000 B/s": Scene(Scenario(clients=4, consume=True, quota=100_000, seconds=90)),
    "32 at 51,200 B/s": Scene(
        Scenario(clients=32, consume=True, quota=51_200, warm_up_ms=60_000), used=0.95, jain=0.99
    ),
    "1 learns": Scene(Scenario(consume=True, quota=100_000, told=False)),
    "4 learn": Scene(Scenario(clients=4, consume=True, quota=100_000, told=False, seconds=90)),
    "32 learn, batches of one": Scene(
        Scenario(clients=32, consume=True, quota=51_200, batch_messages=1, told=False, warm_up_ms=60_000),
        used=0.95,
        jain=0.9,
    ),
    "8 learn, then 4 go": Scene(
        Scenario(
            clients=8,
            consume=True,
            quota=51_200,
            batch_messages=1,
            told=False,
            seconds=180,
            warm_up_ms=60_000,
            changes=(Change(120_000, -4),),
        ),
        settles_s=35,
    ),
}
BESIDE: Final = {
    "1 beside 1 plain, 51,200 B/s": Scene(Scenario(plain=1, quota=51_200, seconds=280, warm_up_ms=180_000)),
    "1 beside 1 plain, 1 MiB/s": Scene(Scenario(plain=1, quota=1_048_576, seconds=280, warm_up_ms=180_000)),
    "1 beside 3 plain": Scene(Scenario(plain=3, quota=1_048_576, seconds=280, warm_up_ms=180_000)),
    "3 beside 1 plain": Scene(Scenario(clients=3, plain=1, quota=1_048_576, seconds=280, warm_up_ms=180_000)),
    "8 alone, 1 MiB/s": Scene(Scenario(clients=8, quota=1_048_576, seconds=90)),
}
SENDING: Final = {
    "orders, zstd, 3 partitions": Scene(Cell(Batching("orders", "zstd"), 3, 51_200.0), used=0.95, p99_s=1.2),
    "orders, none, 12 partitions, 80 ms": Scene(
        Cell(Batching("orders", "none"), 12, 204_800.0, seconds=40, network=FAR), used=0.95
    ),
    "orders, lz4, 12 partitions, 60 keys": Scene(Cell(Batching("orders", "lz4"), 12, 51_200.0, keys=60)),
    "readings, lz4, 100 partitions, 1,000 keys": Scene(
        Cell(Batching("readings", "lz4"), 100, 51_200.0, seconds=45, keys=1_000)
    ),
    "orders, zstd, 12 partitions, a late thread": Scene(Cell(Batching("orders", "zstd"), 12, 51_200.0, late_ms=20)),
    "readings, zstd, 100 partitions": Scene(
        Cell(Batching("readings", "zstd"), 100, 51_200.0, seconds=45), used=0.95, p99_s=1.2
    ),
    "noise, none, 12 partitions": Scene(Cell(Batching("noise", "none"), 12, 51_200.0), used=0.95, p99_s=0.3),
    "noise, zstd, 3 partitions": Scene(Cell(Batching("noise", "zstd"), 3, 51_200.0), used=0.95, p99_s=0.3),
    "documents, lz4, 1 partition": Scene(
        Cell(Batching("documents", "lz4"), 1, 51_200.0, seconds=300), used=0.95, p99_s=1.2
    ),
    "orders, lz4, 12 partitions, after light use": Scene(Light("orders", "lz4", 12, 0.3, 0), used=0.95, p99_s=0.2),
    "noise, lz4, 3 partitions, begins": Scene(Cell(Batching("noise", "lz4"), 3, 51_200.0, seconds=20, warm_up_s=0)),
    "readings, lz4, 3 partitions, begins": Scene(
        Cell(Batching("readings", "lz4"), 3, 51_200.0, seconds=20, warm_up_s=0)
    ),
}
SPARED: Final = {
    "40 MB/s, 0.85 of it, evenly": Scene(Spared(40_000_000, 0.85, 100)),
    "2.4 MB/s, 0.85 of it, evenly": Scene(Spared(2_400_000, 0.85, 100)),
    "40 MB/s, 0.85 of it, every second": Scene(Spared(40_000_000, 0.85, 1_000)),
}
SHARED: Final = {
    "20 kB/s, 15 kB batches": Scene(Shared(20_000, 15)),
    "100 kB/s, 15 kB batches": Scene(Shared(100_000, 15)),
    "100 kB/s, 190 kB batches": Scene(Shared(100_000, 190)),
    "20 kB/s, 5 kB batches": Scene(Shared(20_000, 5)),
    "20 kB/s, 15 kB batches, a slow application": Scene(Shared(20_000, 15, busy_ms=400)),
    "100 kB/s, 50 kB batches, a slow application": Scene(Shared(100_000, 50, busy_ms=400)),
}
SIZED: Final = {
    "batches of 200 B, 1 MiB/s": Scene(Fetched(1_048_576, 0.1, 200)),
    "batches of 200 B, 51,200 B/s": Scene(Fetched(51_200, 0.1, 200)),
    "batches of 1,000 B, 1 MiB/s": Scene(Fetched(1_048_576, 0.1, 1_000)),
    "batches of 4,000 B, 1 MiB/s": Scene(Fetched(1_048_576, 0.1, 4_000)),
    "batches of 16 kB, 1 MiB/s, 80 ms": Scene(Fetched(1_048_576, 80, 16_384)),
    "batches of 16 kB, 20 MB/s, 20 ms": Scene(Fetched(20_000_000, 20, 16_384)),
    "batches of 100 kB, 1 MiB/s, 100 partitions": Scene(Fetched(1_048_576, 3, 100_000, 100)),
}
SCENES: Final = {
    "known": KNOWN,
    "learnt": LEARNT,
    "fetch": FETCHES,
    "beside": BESIDE,
    "send": SENDING,
    "share": SHARED,
    "spare": SPARED,
    "sizes": SIZED,
}
"""By side."""
