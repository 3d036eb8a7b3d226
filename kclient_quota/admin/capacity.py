"""The arithmetic of quotas: what each client and the whole cluster get, bursts, and the smallest quota that delivers.

A broker enforces quotas by itself, so what a client gets in all depends on how many brokers it talks to: those that
lead partitions of its topic.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kclient_quota.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

DEFAULT_SAMPLES = 11
DEFAULT_WINDOW_S = 1.0
PERCENT_PER_THREAD = 100.0


def effective_rate(quota: float, brokers: int, partitions: int, *, clients: int = 1) -> float:
    """What each of several equal clients that share a quota gets in all, at best.

    Args:
        quota: bytes per second on one broker.
        brokers: of the cluster, x.
        partitions: of the topic, y, evenly led.
        clients: that share the quota because they have the same user or client-id, m.

    Returns:
        min(x, y) * quota / m, in bytes per second.

    Raises:
        ConfigError: a number is not positive.
    """
    _positive(quota=quota, brokers=brokers, partitions=partitions, clients=clients)
    return min(brokers, partitions) * quota / clients


def even_leaders(brokers: int, partitions: int) -> tuple[int, ...]:
    """How many partitions each broker leads when they are spread as evenly as they can be."""
    _positive(brokers=brokers, partitions=partitions)
    each, more = divmod(partitions, brokers)
    return tuple(each + (number < more) for number in range(brokers))


def keyed_rate(quota: float, leaders: Sequence[int]) -> float:
    """What a producer gets whose messages go to every partition alike: its busiest broker holds it back.

    Args:
        quota: bytes per second on one broker.
        leaders: how many partitions each broker leads.

    Returns:
        quota * partitions / most partitions on one broker, in bytes per second.

    Raises:
        ConfigError: no partition has a leader.
    """
    _positive(quota=quota)
    if not any(leaders):
        raise ConfigError("leaders: no partition has a leader, so nothing can be produced or consumed")
    return quota * sum(leaders) / max(leaders)


def shared_rates(quota: float, brokers: int, topics: Sequence[int]) -> tuple[float, ...]:
    """What each of several clients with a topic of its own gets when they share a quota and all want more.

    Every broker divides its quota among those of the clients that talk to it.

    Args:
        quota: bytes per second on one broker.
        brokers: of the cluster.
        topics: partitions of each client's topic; their leaders begin on the same broker, which is the worst case.

    Raises:
        ConfigError: a number is not positive.
    """
    _positive(quota=quota, brokers=brokers, **{f"topic_{index}": count for index, count in enumerate(topics)})
    used = [min(brokers, partitions) for partitions in topics]
    at = Counter(broker for count in used for broker in range(count))
    return tuple(sum(quota / at[broker] for broker in range(count)) for count in used)


def mixed_rate(quota: float, brokers_of_one: int, brokers_of_other: int) -> float:
    """The article's observation for two topics of x and y partitions that are produced to under one client-id.

    Args:
        quota: bytes per second on one broker.
        brokers_of_one: brokers that lead partitions of the one topic, x.
        brokers_of_other: of the other, y.

    Returns:
        (x + y) / 2 * quota in bytes per second: the mean of what each would get alone. Measured, not guaranteed; where
        the topics share brokers, `shared_rates` is the bound.

    Raises:
        ConfigError: a number is not positive.
    """
    _positive(quota=quota, brokers_of_one=brokers_of_one, brokers_of_other=brokers_of_other)
    return (brokers_of_one + brokers_of_other) / 2 * quota


def quota_for_rate(rate: float, brokers: int, partitions: int, *, clients: int = 1) -> int:
    """The per-broker quota at which each of several clients gets a rate, the reverse of `effective_rate`.

    Raises:
        ConfigError: a number is not positive.
    """
    _positive(rate=rate, brokers=brokers, partitions=partitions, clients=clients)
    return math.ceil(rate * clients / min(brokers, partitions))


@dataclass(frozen=True, slots=True)
class Burst:
    """How much may pass at once after idleness, and for how long the broker then makes one wait.

    Attributes:
        window_s: seconds over which a rate is measured once the window is full: samples - 1 whole ones.
        bytes: what passes without a throttle.
        fetch_bytes: the most that a broker puts into one fetch.
    """

    window_s: float
    bytes: float
    fetch_bytes: float


def burst(quota: float, *, samples: int = DEFAULT_SAMPLES, window_s: float = DEFAULT_WINDOW_S) -> Burst:
    """What a quota lets pass at once (`ClientQuotaManager.maxValueInQuotaWindow`).

    Args:
        quota: bytes per second on one broker.
        samples: `quota.window.num`.
        window_s: `quota.window.size.seconds`.

    Raises:
        ConfigError: a number is not positive, or there is no whole window.
    """
    _positive(quota=quota, samples=samples - 1, window_s=window_s)
    whole = (samples - 1) * window_s
    return Burst(whole, quota * whole, quota * whole)


def throttle_after(
    burst_bytes: float, quota: float, *, samples: int = DEFAULT_SAMPLES, window_s: float = DEFAULT_WINDOW_S
) -> float:
    """Seconds of throttle after so many bytes at once, from idleness (`QuotaUtils.throttleTime`); 0 for none.

    Raises:
        ConfigError: a number is not positive.
    """
    _positive(burst_bytes=burst_bytes, quota=quota, samples=samples - 1, window_s=window_s)
    return max(0.0, burst_bytes / quota - (samples - 1) * window_s)


def smallest_consumer_quota(
    batch_bytes: int, *, overhead_bytes: int = 128, samples: int = DEFAULT_SAMPLES, window_s: float = DEFAULT_WINDOW_S
) -> int:
    """The smallest consumer quota under which a batch is ever delivered.

    A broker returns the first batch whole, and if that alone exceeds quota times window, answers it with an empty
    response and a throttle, again and again.

    Args:
        batch_bytes: the largest batch as it is stored, compressed.
        overhead_bytes: of the response around it.
        samples: `quota.window.num`.
        window_s: `quota.window.size.seconds`.

    Returns:
        bytes per second on one broker.

    Raises:
        ConfigError: a number is not positive.
    """
    _positive(batch_bytes=batch_bytes, samples=samples - 1, window_s=window_s)
    return math.ceil((batch_bytes + overhead_bytes) / ((samples - 1) * window_s))


def largest_batch(
    quota: float, *, overhead_bytes: int = 128, samples: int = DEFAULT_SAMPLES, window_s: float = DEFAULT_WINDOW_S
) -> int:
    """The largest batch that a consumer quota ever delivers, in bytes as it is stored; producers must keep below it.

    Raises:
        ConfigError: a number is not positive.
    """
    return max(0, math.floor(burst(quota, samples=samples, window_s=window_s).bytes) - overhead_bytes)


def request_percentage_ceiling(io_threads: int, network_threads: int) -> float:
    """The request percentage that all threads of a broker together are: a quota above it limits nothing.

    Args:
        io_threads: `num.io.threads`.
        network_threads: `num.network.threads`.

    Returns:
        (io_threads + network_threads) * 100.

    Raises:
        ConfigError: a number is not positive.
    """
    _positive(io_threads=io_threads, network_threads=network_threads)
    return (io_threads + network_threads) * PERCENT_PER_THREAD


@dataclass(frozen=True, slots=True)
class UsageAdvice:
    """What a quota should be, by what was used.

    Attributes:
        entity: whose, in words.
        peak: the largest rate on one broker, bytes per second.
        quota: what to set.
    """

    entity: str
    peak: float
    quota: int


def advise_from_usage(usage: Iterable[tuple[str, float]], *, headroom: float = 0.25) -> list[UsageAdvice]:
    """Quotas that would have let everything pass that was measured, with headroom; largest first.

    Args:
        usage: entities and rates on one broker, any number of each.
        headroom: part of the peak that is added.

    Raises:
        ConfigError: a rate is negative.
    """
    peaks: dict[str, float] = {}
    for entity, rate in usage:
        if not rate >= 0:
            raise ConfigError(f"usage of {entity}: {rate!r} is no rate")
        peaks[entity] = max(peaks.get(entity, 0.0), rate)
    advice = [UsageAdvice(entity, peak, max(1, math.ceil(peak * (1 + headroom)))) for entity, peak in peaks.items()]
    return sorted(advice, key=lambda each: (-each.peak, each.entity))


def _positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not (number > 0 and math.isfinite(number)):
            raise ConfigError(f"{name.replace('_', '-')}={number!r}: it must be greater than 0")
