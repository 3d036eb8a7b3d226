"""Figures out of what happened: utilisation, fairness, throttle times, how soon things settle."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final

from kclient_quota.simulation.model import Scenario
from kclient_quota.simulation.outcome import BIN_MS, Outcome, Throttles

FAIRNESS_MS: Final = 60_000
"""Fairness is measured over so long at the end, or since the last change if that is shorter."""
SPAN_MS: Final = 10_000
"""Settled is judged by spans of this length."""
SETTLED_UTILISATION: Final = 0.9
SETTLED_FAIRNESS: Final = 0.9


@dataclass(frozen=True, slots=True)
class Settling:
    """How soon clients came to terms after some came or went.

    Attributes:
        at_ms: when that was; 0 is the start.
        after_ms: how much later the first ten seconds began in which utilisation and fairness were 0.9 at least; None
            when there were none until the next change.
    """

    at_ms: int
    after_ms: int | None


@dataclass(frozen=True, slots=True)
class PlainFigures:
    """What plain clients had beside kclient-quota's, after the warm-up.

    Attributes:
        used: their part of the bytes that brokers recorded.
        throttle_p50_ms: of all their responses, as the next two.
        throttle_p99_ms: of a hundred responses, the second longest.
        throttle_max_ms: the longest.
        longest_gap_ms: the longest that any of them was without a message.
    """

    used: float
    throttle_p50_ms: int
    throttle_p99_ms: int
    throttle_max_ms: int
    longest_gap_ms: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of a scenario.

    Where plain clients are among others, only `utilisation`, `bytes_per_second`, `requests` and `settling` are of all;
    the rest is of kclient-quota's clients, and `plain` tells of the others.

    Attributes:
        utilisation: bytes that brokers recorded after the warm-up / (quota x time x brokers that anybody uses).
        bytes_per_second: the same bytes per second, of all brokers together.
        jain: Jain's index of the clients that were there for all of the last 60 s; 1 is equal.
        least_share: what the poorest of them had, as a part of an equal share; 1 is equal.
        requests: produce or fetch requests in all.
        throttled: part of the responses after the warm-up that carried a throttle time.
        throttle_p50_ms: of all responses after the warm-up, as the next two.
        throttle_p99_ms: of a hundred responses, the second longest.
        throttle_max_ms: the longest.
        first_throttle_ms: the longest before the end of the warm-up.
        longest_gap_ms: the longest after the warm-up that any client was without a message (sent and recorded, or
            received).
        settling: for the start and every change.
        throttle_times: throttle time in ms to how many responses after the warm-up carried it.
        plain: what plain clients had; None without any, or without any others.
    """

    utilisation: float
    bytes_per_second: float
    jain: float
    least_share: float
    requests: int
    throttled: float
    throttle_p50_ms: int
    throttle_p99_ms: int
    throttle_max_ms: int
    first_throttle_ms: int
    longest_gap_ms: int
    settling: tuple[Settling, ...]
    throttle_times: Mapping[int, int]
    plain: PlainFigures | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def jain_index(shares: Sequence[float]) -> float:
    """Jain's fairness index: 1 when all are equal, 1/n when one has everything; 1 when there is nothing to share."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def percentile(counts: Mapping[int, int], part: float) -> int:
    """The value that `part` of all is not above (nearest rank); 0 when there are none."""
    rank = part * sum(counts.values())
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= rank:
            return value
    return 0


def bytes_of(outcomes: Iterable[Outcome], begin_ms: int, end_ms: int) -> dict[int, int]:
    """Bytes of each client in a span of time, reckoned from the start."""
    first, last = -(-begin_ms // BIN_MS), end_ms // BIN_MS
    return {
        client: sum(bins[first:last])
        for outcome in outcomes
        for client, bins in zip(outcome.part.clients, outcome.bytes_by_bin, strict=True)
    }


def shares(
    presence: Sequence[tuple[int, int]],
    outcomes: Iterable[Outcome],
    begin_ms: int,
    end_ms: int,
    clients: Collection[int] | None = None,
) -> list[int]:
    """Bytes of each client (of `clients`, if given) that was there all of the time, in the order of the outcomes."""
    return [
        nbytes
        for client, nbytes in bytes_of(outcomes, begin_ms, end_ms).items()
        if presence[client][0] <= begin_ms and end_ms <= presence[client][1] and (clients is None or client in clients)
    ]


def figures(scenario: Scenario, outcomes: Sequence[Outcome]) -> Figures:
    """The figures of all parts of a scenario together."""
    warm_ms, end_ms = scenario.warm_up_ms, scenario.end_ms
    brokers = sum(len(outcome.part.brokers) for outcome in outcomes)
    span_s = (end_ms - -(-warm_ms // BIN_MS) * BIN_MS) / 1000
    by_client = bytes_of(outcomes, warm_ms, end_ms)
    together = sum(by_client.values()) / span_s
    only_plain = scenario.plain == scenario.total_clients
    mixed = scenario.plain > 0 and not only_plain
    told_of = {client for client in by_client if only_plain or not scenario.is_plain(client)}
    last_change_ms = max((change.at_ms for change in scenario.changes), default=0)
    from_ms = max(warm_ms, last_change_ms, end_ms - FAIRNESS_MS)
    fair = shares(scenario.presence(), outcomes, from_ms, end_ms, told_of)
    throttles, first_throttle_ms = _throttles(
        outcome.plain_throttles if only_plain else outcome.throttles for outcome in outcomes
    )
    responses = throttles.total()
    return Figures(
        utilisation=together / (scenario.quota * brokers),
        bytes_per_second=together,
        jain=jain_index(fair),
        least_share=min(fair) * len(fair) / sum(fair) if any(fair) else 0.0,
        requests=sum(outcome.requests for outcome in outcomes),
        throttled=1.0 - throttles[0] / responses if responses else 0.0,
        throttle_p50_ms=percentile(throttles, 0.5),
        throttle_p99_ms=percentile(throttles, 0.99),
        throttle_max_ms=max(throttles, default=0),
        first_throttle_ms=first_throttle_ms,
        longest_gap_ms=_longest_gap_ms(outcomes, told_of),
        settling=settling(scenario, outcomes),
        throttle_times=dict(sorted(throttles.items())),
        plain=_plain_figures(outcomes, by_client, by_client.keys() - told_of) if mixed else None,
    )


def _throttles(found: Iterable[Throttles]) -> tuple[Counter[int], int]:
    counts: Counter[int] = Counter()
    first_ms = 0
    for throttles in found:
        counts.update(throttles.counts)
        first_ms = max(first_ms, throttles.first_ms)
    return counts, first_ms


def _longest_gap_ms(outcomes: Iterable[Outcome], clients: Collection[int]) -> int:
    return max(
        (
            gap_ms
            for outcome in outcomes
            for client, gap_ms in zip(outcome.part.clients, outcome.longest_gap_ms, strict=True)
            if client in clients
        ),
        default=0,
    )


def _plain_figures(outcomes: Sequence[Outcome], by_client: Mapping[int, int], clients: Collection[int]) -> PlainFigures:
    throttles, _ = _throttles(outcome.plain_throttles for outcome in outcomes)
    return PlainFigures(
        used=sum(by_client[client] for client in clients) / (sum(by_client.values()) or 1),
        throttle_p50_ms=percentile(throttles, 0.5),
        throttle_p99_ms=percentile(throttles, 0.99),
        throttle_max_ms=max(throttles, default=0),
        longest_gap_ms=_longest_gap_ms(outcomes, clients),
    )


def settling(scenario: Scenario, outcomes: Sequence[Outcome]) -> tuple[Settling, ...]:
    """How soon clients came to terms, after the start and after every change."""
    presence = scenario.presence()
    capacity = scenario.quota * sum(len(outcome.part.brokers) for outcome in outcomes)
    times = [*sorted({0, *(change.at_ms for change in scenario.changes)}), scenario.end_ms]
    found = []
    for begin_ms, end_ms in pairwise(times):
        present = (client for client, (came_ms, went_ms) in enumerate(presence) if came_ms <= begin_ms < went_ms)
        wanted = min(capacity, sum(map(scenario.demand, present)))
        after_ms = _settled_after(presence, outcomes, wanted, begin_ms, end_ms)
        found.append(Settling(begin_ms, after_ms))
    return tuple(found)


def _settled_after(
    presence: Sequence[tuple[int, int]], outcomes: Sequence[Outcome], wanted: float, begin_ms: int, end_ms: int
) -> int | None:
    for from_ms in range(begin_ms, end_ms - SPAN_MS + 1, BIN_MS):
        to_ms = from_ms + SPAN_MS
        used = sum(bytes_of(outcomes, from_ms, to_ms).values()) * 1000 / SPAN_MS
        if used < wanted * SETTLED_UTILISATION:
            continue
        if jain_index(shares(presence, outcomes, from_ms, to_ms)) >= SETTLED_FAIRNESS:
            return from_ms - begin_ms
    return None
