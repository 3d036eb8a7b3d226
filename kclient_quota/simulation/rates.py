"""Figures out of what happened: utilisation, fairness, throttle times, how soon things settle."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Final

from kclient_quota.simulation.model import Kind, Scenario
from kclient_quota.simulation.outcome import BIN_MS, Outcome

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
class KindFigures:
    """What clients of one kind had beside others, after the warm-up.

    Attributes:
        used: their part of the bytes that brokers recorded.
        throttle_p50_ms: of all their responses, as the next two.
        throttle_p99_ms: of a hundred responses, the second longest.
        throttle_max_ms: the longest.
        longest_gap_ms: the longest that any of them was without a message.
        clients: how many there were at any time.
        share: what one of them had on average, as a part of an equal share; as the next two, of all clients that
            were there for all of the last 60 s.
        jain: Jain's index among themselves; 1 is equal.
        least_share: what the poorest of them had, as a part of what an equal share among themselves is.
    """

    used: float
    throttle_p50_ms: int
    throttle_p99_ms: int
    throttle_max_ms: int
    longest_gap_ms: int
    clients: int
    share: float
    jain: float
    least_share: float


@dataclass(frozen=True, slots=True)
class DeliveryFigures:
    """What became of plain producers' messages; counts are of all the time.

    Attributes:
        utilisation: bytes of values that were acknowledged after the warm-up, by what `Figures.utilisation` goes by.
        timeouts: connections that a producer gave up because a request had no answer in time.
        duplicates: messages that are in the log and were sent again.
        expired: messages that were given up as too old: lost to the application.
    """

    utilisation: float
    timeouts: int
    duplicates: int
    expired: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of a scenario.

    Where plain clients are among others, only `utilisation`, `bytes_per_second`, `requests` and `settling` are of all;
    the rest is of kclient-quota's clients, and `plain` tells of the others. Where some of kclient-quota's know the
    quota and others learn it, `known` and `learning` tell of either.

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
        known: what those of kclient-quota's clients had that know the quota; None without any, or unless others learn.
        learning: what those had that learn it; None without any, or unless others know.
        delivery: what became of plain producers' messages; None without any.
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
    plain: KindFigures | None = None
    known: KindFigures | None = None
    learning: KindFigures | None = None
    delivery: DeliveryFigures | None = None

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
    kinds = _kinds(scenario, by_client)
    told: list[Kind] = [kind for kind in kinds if kind != Kind.PLAIN] or [Kind.PLAIN]
    told_of = {client for kind in told for client in kinds[kind]}
    fair = shares(scenario.presence(), outcomes, _fair_from_ms(scenario), end_ms, told_of)
    throttles, first_throttle_ms = _throttles(outcomes, told)
    responses = throttles.total()
    of_kinds = {
        kind.value: _kind_figures(scenario, outcomes, kind, clients, by_client)
        for kind, clients in kinds.items()
        if _is_told_of(kind, kinds)
    }
    return Figures(
        utilisation=together / (scenario.quota * brokers),
        bytes_per_second=together,
        jain=jain_index(fair),
        least_share=_least_share(fair),
        requests=sum(outcome.requests for outcome in outcomes),
        throttled=1.0 - throttles[0] / responses if responses else 0.0,
        throttle_p50_ms=percentile(throttles, 0.5),
        throttle_p99_ms=percentile(throttles, 0.99),
        throttle_max_ms=max(throttles, default=0),
        first_throttle_ms=first_throttle_ms,
        longest_gap_ms=_longest_gap_ms(outcomes, told_of),
        settling=settling(scenario, outcomes),
        throttle_times=dict(sorted(throttles.items())),
        **of_kinds,
        delivery=_delivery_figures(scenario, outcomes, brokers * span_s)
        if scenario.plain and not scenario.consume
        else None,
    )


def _kinds(scenario: Scenario, clients: Iterable[int]) -> dict[Kind, set[int]]:
    found: dict[Kind, set[int]] = {}
    for client in clients:
        found.setdefault(scenario.kind(client), set()).add(client)
    return found


def _is_told_of(kind: Kind, kinds: Collection[Kind]) -> bool:
    """Plain clients beside others, and kclient-quota's where some learn and some know."""
    return len(kinds) > 1 if kind is Kind.PLAIN else {Kind.KNOWN, Kind.LEARNING} <= set(kinds)


def _fair_from_ms(scenario: Scenario) -> int:
    last_change_ms = max((change.at_ms for change in scenario.changes), default=0)
    return max(scenario.warm_up_ms, last_change_ms, scenario.end_ms - FAIRNESS_MS)


def _least_share(fair: Sequence[int]) -> float:
    return min(fair) * len(fair) / sum(fair) if any(fair) else 0.0


def _throttles(outcomes: Iterable[Outcome], kinds: Collection[Kind]) -> tuple[Counter[int], int]:
    counts: Counter[int] = Counter()
    first_ms = 0
    for outcome in outcomes:
        for kind in kinds:
            counts.update(outcome.throttles[kind].counts)
            first_ms = max(first_ms, outcome.throttles[kind].first_ms)
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


def _kind_figures(
    scenario: Scenario,
    outcomes: Sequence[Outcome],
    kind: Kind,
    clients: Collection[int],
    by_client: Mapping[int, int],
) -> KindFigures:
    throttles, _ = _throttles(outcomes, [kind])
    span = (_fair_from_ms(scenario), scenario.end_ms)
    everybody = shares(scenario.presence(), outcomes, *span)
    fair = shares(scenario.presence(), outcomes, *span, clients)
    equal = sum(everybody) / len(everybody) if everybody else 0.0
    return KindFigures(
        used=sum(by_client[client] for client in clients) / (sum(by_client.values()) or 1),
        throttle_p50_ms=percentile(throttles, 0.5),
        throttle_p99_ms=percentile(throttles, 0.99),
        throttle_max_ms=max(throttles, default=0),
        longest_gap_ms=_longest_gap_ms(outcomes, clients),
        clients=len(clients),
        share=sum(fair) / len(fair) / equal if fair and equal else 0.0,
        jain=jain_index(fair),
        least_share=_least_share(fair),
    )


def _delivery_figures(scenario: Scenario, outcomes: Iterable[Outcome], broker_seconds: float) -> DeliveryFigures:
    found = [outcome.delivery for outcome in outcomes if outcome.delivery is not None]
    first = -(-scenario.warm_up_ms // BIN_MS)
    delivered = sum(sum(each.bytes_by_bin[first:]) for each in found)
    return DeliveryFigures(
        utilisation=delivered / (scenario.quota * broker_seconds),
        timeouts=sum(each.timeouts for each in found),
        duplicates=sum(each.duplicates for each in found),
        expired=sum(each.expired for each in found),
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
