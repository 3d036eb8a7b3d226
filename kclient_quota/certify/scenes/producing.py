"""Scenes for producers."""

import signal
from dataclasses import replace
from itertools import pairwise
from typing import Final

from kclient_quota.broker.server import EmbeddedBroker
from kclient_quota.certify.driver import PER_TRANSACTION, PRODUCE, TRANSACT, Assignment
from kclient_quota.certify.scene import Judge, Scene
from kclient_quota.certify.scenes.preparing import quota, throttle
from kclient_quota.certify.seen import Seen
from kclient_quota.certify.verdict import Verdict, failed, passed, weak, worst

_PRODUCE_KEY = 0
_TWELVE_HOURS_MS = 12 * 3_600_000
_MARGIN_MS = 150
"""What a request may be under way when the throttle's answer passes it."""
_CLOSE_MS, _LONG_CLOSE_MS = 10_000, 20_000
_WINDOW_MS = 11_000

_KIP_219: Final = "KIP-219, Proposed Changes: the client honours throttle_time_ms, the broker mutes the channel for it"
_KIP_13: Final = "KIP-13, Quota Enforcement: bytes over the quota are delayed, never dropped"


def delivered_once(seen: Seen) -> Verdict:
    """Nothing that was reported as delivered is missing, nothing is there twice, everything has a report."""
    if seen.lost:
        return failed(f"{len(seen.lost)} messages were acknowledged and are not in the log, first id {seen.lost[0]}")
    if seen.duplicated:
        return failed(f"{seen.duplicated} records are in the log twice")
    if seen.unreported:
        return failed(f"{len(seen.unreported)} messages that the client took were never reported")
    stored = sum(number in seen.copies for number in seen.failed)
    if stored:
        return failed(f"{stored} messages were reported as failed and are in the log")
    return passed(f"{len(seen.acknowledged)} delivered, each once")


def all_delivered(count: int) -> Judge:
    """As `delivered_once`, and none of `count` failed."""

    def judge(seen: Seen) -> Verdict:
        once = delivered_once(seen)
        missing = count - len(seen.acknowledged)
        if not missing:
            return once
        return worst(once, failed(f"{missing} of {count} were not delivered: {_first_failure(seen)}"))

    return judge


def _first_failure(seen: Seen) -> str:
    return next((event.text[:120] for event in seen.events if event.text), "no report")


def in_order(seen: Seen) -> Verdict:
    """Ids rise in every partition."""
    for number, partition in enumerate(seen.log):
        if any(later < earlier for earlier, later in pairwise(partition)):
            return failed(f"partition {number} is out of order")
    return passed("every partition is in order")


def is_silent_while_muted(seen: Seen) -> Verdict:
    """No produce request leaves the client between a throttle's answer and its end, on any connection."""
    throttled = [request for request in seen.of_api(_PRODUCE_KEY) if request.throttle_time_ms >= 1_000]
    if not throttled:
        return failed("the client was never throttled: it sent too little")
    first = throttled[0]
    end_ms = first.at_ms + first.throttle_time_ms
    early = [
        sent for sent in seen.sent
        if sent.api_key == _PRODUCE_KEY and first.at_ms + _MARGIN_MS < sent.at_ms < end_ms - _MARGIN_MS
    ]  # fmt: skip
    if early:
        share = (early[0].at_ms - first.at_ms) / 1000
        return failed(f"{len(early)} produce requests left during a throttle, the first {share:.1f} s into it")
    return passed(f"no produce request in {first.throttle_time_ms / 1000:.1f} s")


def does_not_dodge(seen: Seen) -> Verdict:
    """No produce request over a new connection while the old one is muted."""
    throttled = [request for request in seen.of_api(_PRODUCE_KEY) if request.throttle_time_ms >= 1_000]
    if not throttled:
        return failed("the client was never throttled: it sent too little")
    first = throttled[0]
    before = {sent.connection for sent in seen.sent if sent.at_ms <= first.at_ms}
    dodging = [
        sent for sent in seen.sent
        if sent.api_key == _PRODUCE_KEY
        and sent.connection not in before
        and sent.at_ms < first.at_ms + first.throttle_time_ms - _MARGIN_MS
    ]  # fmt: skip
    if dodging:
        late_s = (dodging[0].at_ms - first.at_ms) / 1000
        return failed(f"after {late_s:.1f} s it produced over a new connection, which is not muted")
    return passed("it stayed on the muted connection")


def whole_transactions(seen: Seen) -> Verdict:
    """Of every ten messages all are to be seen, once, or none; those that were reported as committed are."""
    if seen.lost:
        return failed(f"{len(seen.lost)} messages were committed and are not to be seen, first id {seen.lost[0]}")
    if seen.duplicated:
        return failed(f"{seen.duplicated} records are there twice")
    begun = {number // PER_TRANSACTION for number in seen.copies}
    parts = [one for one in begun if sum(number // PER_TRANSACTION == one for number in seen.copies) < PER_TRANSACTION]
    if parts:
        return failed(f"of {len(parts)} transactions a part is to be seen")
    return passed(f"{len(begun)} transactions are to be seen, whole")


def both(*judges: Judge) -> Judge:
    """The worst of several questions."""
    return lambda seen: worst(*(judge(seen) for judge in judges))


def closes(seen: Seen) -> Verdict:
    """The client ends soon after it was told to, with a report for each message."""
    if seen.told_to_stop_ms is None:
        return failed(f"the driver ended before it was told to: exit status {seen.exit_status}")
    if seen.closed_ms is None:
        return failed(f"close() had not returned after {(seen.ended_ms - seen.told_to_stop_ms) / 1000:.0f} s")
    took_ms = seen.closed_ms - seen.told_to_stop_ms
    if seen.unreported:
        return failed(f"close() took {took_ms / 1000:.1f} s and left {len(seen.unreported)} messages without a report")
    if took_ms > _LONG_CLOSE_MS:
        return failed(f"close() took {took_ms / 1000:.1f} s")
    return (weak if took_ms > _CLOSE_MS else passed)(f"close() took {took_ms / 1000:.1f} s")


def uses(byte_rate: int) -> Judge:
    """The quota is used: bytes that the broker took from the eleventh second on, until the last send."""

    def judge(seen: Seen) -> Verdict:
        steady = [r for r in seen.of_api(_PRODUCE_KEY) if r.at_ms >= seen.started_ms + _WINDOW_MS]
        if len(steady) < 10:
            return weak(f"{len(steady)} lumps, longest throttle {seen.longest_throttle_ms(_PRODUCE_KEY) / 1000:.1f} s")
        span_s = (steady[-1].at_ms - steady[0].at_ms) / 1000
        share = sum(request.size_bytes for request in steady[:-1]) / byte_rate / max(span_s, 0.001)
        longest = seen.longest_throttle_ms(_PRODUCE_KEY)
        why = f"{share:.2f} of the quota, longest throttle {longest / 1000:.1f} s"
        if share < 0.5:
            return failed(why)
        return (passed if share >= 0.9 and longest <= 2_000 else weak)(why)

    return judge


def _lose_leader(cluster: EmbeddedBroker, _name: str) -> None:
    cluster.stop_broker(1)


_ONLY_AFTERWARDS: Final = (
    "thomhurst/Dekaf#2263: “KIP-219 requires a client receiving an applicable response with throttle time X to refrain "
    "from sending any further requests to that broker for X.” So clients learn of a quota when they are over it."
)
_MANY = Assignment(PRODUCE, messages=400, pause_ms=10)
_FLOOD = Assignment(PRODUCE, 800, pause_ms=2, config={"request.timeout.ms": 3_000, "delivery.timeout.ms": 120_000})

SCENES = (
    Scene(
        "produce-answered-then-muted",
        "The answer that carries a throttle is an answer: its messages are delivered, once.",
        _KIP_219,
        _MANY,
        all_delivered(400),
        prepare=throttle(_PRODUCE_KEY, 2_000),
    ),
    Scene(
        "produce-silent-while-muted",
        "While a connection is muted, no produce request is sent.",
        _KIP_219,
        Assignment(PRODUCE, messages=600, pause_ms=10),
        both(is_silent_while_muted, delivered_once),
        prepare=throttle(_PRODUCE_KEY, 3_000),
    ),
    Scene(
        "produce-short-throttles",
        "Twenty throttles of 50 ms cost a second or two, no message.",
        _KIP_219,
        _MANY,
        all_delivered(400),
        prepare=throttle(_PRODUCE_KEY, 50, times=20),
        within_ms=40_000,
    ),
    Scene(
        "produce-no-dodge",
        "A request timeout in mid-throttle does not lead to a new connection that is not muted.",
        _KIP_219,
        Assignment(PRODUCE, 900, pause_ms=10, config={"request.timeout.ms": 2_000, "delivery.timeout.ms": 60_000}),
        both(does_not_dodge, delivered_once),
        prepare=throttle(_PRODUCE_KEY, 6_000),
    ),
    Scene(
        "produce-close-in-throttle",
        "close() ends within ten seconds in a throttle of twelve hours, with a report for every message.",
        "KIP-15 (close with a timeout); sarama#3710 met a throttle of 12 h 42 min",
        Assignment(PRODUCE, messages=100_000, pause_ms=10, config={"delivery.timeout.ms": 120_000}),
        both(closes, delivered_once),
        prepare=throttle(_PRODUCE_KEY, _TWELVE_HOURS_MS, times=5),
        stop_after_ms=4_000,
    ),
    Scene(
        "produce-interrupted-in-throttle",
        "Ctrl-C in a throttle of twelve hours ends a producer within ten seconds, with a report for every message.",
        "KIP-15 (close with a timeout); sarama#3710 met a throttle of 12 h 42 min",
        Assignment(PRODUCE, messages=100_000, pause_ms=10, config={"delivery.timeout.ms": 120_000}),
        both(closes, delivered_once),
        prepare=throttle(_PRODUCE_KEY, _TWELVE_HOURS_MS, times=5),
        stop_after_ms=4_000,
        stops_by=signal.SIGINT,
    ),
    Scene(
        "produce-backlog",
        "More is sent than the quota lets through within the request timeout: everything arrives, once.",
        _KIP_13,
        _FLOOD,
        all_delivered(800),
        prepare=quota(producer_byte_rate=30_000),
    ),
    Scene(
        "produce-order-by-key",
        "The messages of a key keep their order through throttles.",
        "KIP-98 (idempotent producers keep order with up to five requests in flight)",
        replace(_FLOOD, keys=24),
        both(in_order, delivered_once),
        prepare=quota(producer_byte_rate=40_000),
        partitions=6,
    ),
    Scene(
        "produce-unanswered",
        "Without acknowledgements (acks=0) nobody is told of a throttle: what was reported as sent is there, once.",
        f"{_KIP_219}; Kafka, KafkaApis.handleProduceRequest: acks=0 is muted as well",
        Assignment(PRODUCE, 300, pause_ms=10, config={"acks": 0, "delivery.timeout.ms": 60_000}),
        all_delivered(300),
        prepare=quota(producer_byte_rate=20_000),
        settle_ms=20_000,  # the broker reads what lies in the connection once the mute is over
    ),
    Scene(
        "produce-uses-its-quota",
        "A client with more to send uses its quota, with throttles of two seconds at most.",
        _KIP_13,
        Assignment(PRODUCE, messages=2_600),
        both(uses(100_000), delivered_once),
        prepare=quota(producer_byte_rate=100_000),
        nobody=_ONLY_AFTERWARDS,
    ),
    Scene(
        "produce-compressed-huge",
        "Messages of a quarter of the window each arrive, compressed or not, once.",
        _KIP_13,
        Assignment(PRODUCE, 24, value_bytes=250_000, config={"compression.type": "lz4", "request.timeout.ms": 5_000}),
        all_delivered(24),
        prepare=quota(producer_byte_rate=20_000),
    ),
    Scene(
        "produce-broker-lost-in-throttle",
        "The leader goes away in mid-throttle: what was acknowledged stays, the rest follows at its successor.",
        "KIP-101, KIP-279 (acknowledged records survive a change of leader)",
        replace(_FLOOD, messages=500, pause_ms=5, config={"request.timeout.ms": 5_000, "acks": "all"}),
        all_delivered(500),
        prepare=quota(producer_byte_rate=40_000),
        meanwhile=_lose_leader,
        after_ms=6_000,
        brokers=3,
        within_ms=90_000,
    ),
    Scene(
        "produce-request-quota",
        "A request quota of a twentieth of a percent makes a producer slow, and nothing else.",
        "KIP-124, Proposed Changes: request_percentage",
        Assignment(PRODUCE, messages=100, pause_ms=10, config={"request.timeout.ms": 10_000}),
        all_delivered(100),
        prepare=quota(request_percentage=0.05),
        within_ms=90_000,
    ),
    Scene(
        "produce-tightest-request-quota",
        "So does one of a hundredth of a percent, under which every request is throttled for a second.",
        "KIP-124, Proposed Changes: request_percentage; a throttle is one sample at most",
        Assignment(PRODUCE, messages=40, pause_ms=10, config={"request.timeout.ms": 10_000}),
        all_delivered(40),
        prepare=quota(request_percentage=0.01),
        within_ms=90_000,
    ),
    Scene(
        "produce-late-answers",
        "A broker that answers late and then says by how much (Event Hubs) loses and doubles nothing.",
        "learn.microsoft.com, Apache Kafka troubleshooting guide for Event Hubs, server busy",
        replace(_FLOOD, messages=300, config={"request.timeout.ms": 60_000}),
        delivered_once,
        prepare=lambda cluster, _: cluster.set_quota(default_user=True, producer_byte_rate=30_000),
        broker={"manner": "event-hubs"},
    ),
    Scene(
        "produce-next-late",
        "A broker that makes the next request late (Redpanda) loses and doubles nothing.",
        "docs.redpanda.com, Manage Throughput",
        replace(_FLOOD, messages=400),
        delivered_once,
        prepare=quota(producer_byte_rate=30_000),
        broker={"manner": "redpanda"},
    ),
    Scene(
        "transactions-in-throttle",
        "Transactions that wait out throttles commit, each message once.",
        "KIP-98; KIP-219",
        Assignment(TRANSACT, messages=100, config={"transaction.timeout.ms": 30_000}),
        all_delivered(100),
        prepare=throttle(_PRODUCE_KEY, 2_000, times=3),
    ),
    Scene(
        "transactions-outlive-throttle",
        "A transaction whose time runs out in a throttle is aborted whole: nothing of it is seen, nothing is doubled.",
        "KIP-98: transaction.timeout.ms; KIP-890",
        Assignment(TRANSACT, messages=60, config={"transaction.timeout.ms": 4_000}),
        whole_transactions,
        prepare=throttle(_PRODUCE_KEY, 10_000),
    ),
    Scene(
        "transactions-under-quota",
        "Transactions under a small quota commit, each message once.",
        "KIP-98; KIP-13",
        Assignment(TRANSACT, messages=300, config={"transaction.timeout.ms": 60_000}),
        all_delivered(300),
        prepare=quota(producer_byte_rate=30_000),
    ),
)
