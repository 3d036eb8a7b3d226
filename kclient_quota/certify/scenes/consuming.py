"""Scenes for consumers and their groups."""

import signal
from itertools import pairwise
from typing import Final

from kclient_quota.certify.driver import CONSUME, RECEIVED, Assignment
from kclient_quota.certify.scene import Judge, Scene
from kclient_quota.certify.scenes.preparing import quota, throttle
from kclient_quota.certify.scenes.producing import both, closes
from kclient_quota.certify.seen import Seen
from kclient_quota.certify.verdict import Verdict, absent, failed, passed, weak

_FETCH, _JOIN_GROUP, _HEARTBEAT, _LEAVE_GROUP, _GROUP_HEARTBEAT = 1, 11, 12, 13, 68
_WINDOW_MS = 11_000
_SHARE_S, _SHARE_848_S = 10, 20
"""Where the broker leads a rebalance both members hear of it with their next heartbeats, five seconds apart."""
_JOINS = 2
_TWELVE_HOURS_MS = 12 * 3_600_000
_KIP_219: Final = "KIP-219, Proposed Changes"
_KIP_13: Final = "KIP-13, Quota Enforcement; Kafka answers a fetch over the quota empty and does not count it"
_SESSION = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000, "max.poll.interval.ms": 30_000}


def receives(count: int) -> Judge:
    """Every id once, in order within a partition."""

    def judge(seen: Seen) -> Verdict:
        missing = count - len(seen.received)
        if missing:
            words = f"; it said: {seen.said[0].text[:100]}" if seen.said else ""
            return failed(f"{missing} of {count} messages never came{words}")
        again = seen.received.total() - len(seen.received)
        if again:
            return failed(f"{again} messages came twice, though nobody was rebalanced")
        return passed(f"{count} came, each once")

    return judge


def gets_its_quota(byte_rate: int, value_bytes: int) -> Judge:
    """What it may have, evenly."""

    def judge(seen: Seen) -> Verdict:
        times = [event.at_ms for event in seen.events if event.kind == "received"]
        steady = [at_ms for at_ms in times if at_ms >= seen.started_ms + _WINDOW_MS]
        if len(steady) < 2:
            return failed("next to nothing came after the first eleven seconds")
        share = (len(steady) - 1) * value_bytes / ((steady[-1] - steady[0]) / 1000 or 1) / byte_rate
        gap_s = max(later - earlier for earlier, later in pairwise(steady)) / 1000
        why = f"{share:.2f} of the quota, longest gap {gap_s:.1f} s"
        if share < 0.3:
            return failed(why)
        return (passed if share >= 0.85 and gap_s <= 2.5 else weak)(why)

    return judge


def stays_in_its_group(seen: Seen) -> Verdict:
    """It joins once, and nobody throws it out."""
    first_ms = next((event.at_ms for event in seen.events if event.kind == "received"), seen.ended_ms)
    joins = sum(request.at_ms > first_ms for request in seen.of_api(_JOIN_GROUP))
    beats = seen.of_api(_GROUP_HEARTBEAT)
    if beats:
        late = sum(later.at_ms - earlier.at_ms > 6_000 for earlier, later in pairwise(beats))
        return failed(f"{late} times no heartbeat for six seconds") if late else passed("no heartbeat was late")
    if joins:
        return failed(f"it had to join its group again {joins} times")
    return passed("it stayed in its group")


def joins_once(seen: Seen) -> Verdict:
    """One join, and one more where the first only hands out the member's id (KIP-394)."""
    joins = len(seen.of_api(_JOIN_GROUP))
    beats = seen.of_api(_HEARTBEAT) + seen.of_api(_GROUP_HEARTBEAT)
    if not beats:
        return failed("it never got into its group")
    if joins > _JOINS:
        return failed(f"it had to join its group {joins} times")
    return passed(f"it stayed in its group; {len(seen.received)} messages came")


def by_kip_848(judge: Judge) -> Judge:
    """The question goes to those only who do not join by the classic protocol all the same."""

    def judged(seen: Seen) -> Verdict:
        classic = seen.of_api(_JOIN_GROUP) and not seen.of_api(_GROUP_HEARTBEAT)
        return absent("it joins by the classic protocol") if classic else judge(seen)

    return judged


def second_has_its_share(within_s: float) -> Judge:
    """How long the second member waited for its first message."""

    def judge(seen: Seen) -> Verdict:
        first_ms = next((event.at_ms for event in seen.second if event.kind == RECEIVED), None)
        if seen.second_started_ms is None or first_ms is None:
            return failed("the second member got nothing")
        waited_s = (first_ms - seen.second_started_ms) / 1000
        return (passed if waited_s <= within_s else weak)(f"the second member had its share after {waited_s:.1f} s")

    return judge


def all_come(count: int) -> Judge:
    """Every id came to one member or the other; what was not committed may come to both."""

    def judge(seen: Seen) -> Verdict:
        found = {event.id for event in (*seen.events, *seen.second) if event.kind == RECEIVED}
        missing = count - len(found)
        return failed(f"{missing} of {count} messages never came") if missing else passed(f"{count} came")

    return judge


def says_that_it_cannot(seen: Seen) -> Verdict:
    """A batch larger than the window never comes: somebody has to say so."""
    if seen.received:
        return passed("it got the batch all the same")
    if seen.said:
        return passed(f"it said: {seen.said[0].text[:120]}")
    if "quota" in seen.words.lower():
        return weak("it wrote so to its log, the application was not told")
    return failed("nothing came and nothing was said")


def asks_seldom(most_per_s: float) -> Judge:
    """Fetches that are answered empty are not repeated in a hurry."""

    def judge(seen: Seen) -> Verdict:
        span_s = max((seen.ended_ms - seen.started_ms) / 1000, 1)
        rate = len(seen.of_api(_FETCH)) / span_s
        return (passed if rate <= most_per_s else weak)(f"{rate:.1f} fetches a second")

    return judge


def _leaves(seen: Seen) -> Verdict:
    left = len(seen.of_api(_LEAVE_GROUP)) + sum(request.size_bytes < 200 for request in seen.of_api(_GROUP_HEARTBEAT))
    return passed("it left its group") if left else weak("it never told its group that it leaves")


_TRIES_AGAIN: Final = (
    "apache/kafka#8290: “fetch requests get throttled by returning empty response with the delay in `throttle_time_ms` "
    "and Kafka consumer retries again after the delay.” What was asked for is as large as before."
)
_CANNOT_BE: Final = (
    "apache/kafka#8290: “This PR ensures that consumers cannot get blocked by quota by capping `fetchMaxBytes`”. The "
    "first batch is sent whole all the same, and no client looks for what cannot be."
)

SCENES = (
    Scene(
        "consume-uses-its-quota",
        "A consumer with more to read than its quota gets the quota, without gaps of many seconds.",
        _KIP_13,
        Assignment(CONSUME, messages=2_900),
        both(gets_its_quota(100_000, 1_000), receives(2_900)),
        prepare=quota(consumer_byte_rate=100_000),
        filled=2_900,
        nobody=_TRIES_AGAIN,
    ),
    Scene(
        "consume-large-batches",
        "Batches of two seconds of the quota each come one after the other.",
        _KIP_13,
        Assignment(CONSUME, messages=1_200),
        both(gets_its_quota(50_000, 1_000), receives(1_200)),
        prepare=quota(consumer_byte_rate=50_000),
        filled=1_200,
        per_batch=100,
        within_ms=75_000,
        nobody=_TRIES_AGAIN,
    ),
    Scene(
        "consume-batch-that-never-fits",
        "A batch larger than ten seconds of the quota can never be delivered: the application is told.",
        "Kafka, ClientQuotaManager.maxValueInQuotaWindow; DelayedFetch answers such a fetch empty for ever",
        Assignment(CONSUME, messages=800),
        says_that_it_cannot,
        prepare=quota(consumer_byte_rate=10_000),
        filled=800,
        per_batch=400,
        within_ms=40_000,
        nobody=_CANNOT_BE,
    ),
    Scene(
        "consume-heartbeats-in-throttle",
        "Fetch throttles of ten seconds do not cost a consumer its group (session timeout 6 s).",
        "KIP-124: the group's requests go over the coordinator's connection; KIP-62 (heartbeats in the background)",
        Assignment(CONSUME, messages=300, config=_SESSION),
        both(stays_in_its_group, receives(300)),
        prepare=throttle(_FETCH, 10_000, times=2),
        filled=300,
    ),
    Scene(
        "consume-heartbeats-in-throttle-848",
        "The same with the group protocol of KIP-848.",
        "KIP-848, Consumer group heartbeat",
        Assignment(CONSUME, messages=300, config={"group.protocol": "consumer", "max.poll.interval.ms": 30_000}),
        by_kip_848(both(stays_in_its_group, receives(300))),
        prepare=throttle(_FETCH, 10_000, times=2),
        filled=300,
    ),
    Scene(
        "consume-close-in-throttle",
        "close() ends within ten seconds in a fetch throttle of twelve hours.",
        "KIP-102 (close with a timeout)",
        Assignment(CONSUME, messages=1_000_000),
        closes,
        prepare=throttle(_FETCH, _TWELVE_HOURS_MS, times=3),
        filled=300,
        stop_after_ms=6_000,
    ),
    Scene(
        "consume-interrupted-in-throttle",
        "Ctrl-C in a fetch throttle of twelve hours ends a consumer within ten seconds.",
        "KIP-102 (close with a timeout)",
        Assignment(CONSUME, messages=1_000_000),
        closes,
        prepare=throttle(_FETCH, _TWELVE_HOURS_MS, times=3),
        filled=300,
        stop_after_ms=6_000,
        stops_by=signal.SIGINT,
    ),
    Scene(
        "consume-empty-answers",
        "Empty answers over the quota lose no message and are not asked for in a hurry.",
        _KIP_13,
        Assignment(CONSUME, messages=700),
        both(receives(700), asks_seldom(40)),
        prepare=quota(consumer_byte_rate=40_000),
        filled=700,
    ),
    Scene(
        "consume-throttled-with-data",
        "A broker that sends data over the quota and mutes afterwards (Redpanda) loses and repeats nothing.",
        "docs.redpanda.com, Manage Throughput; KAFKA-21397 proposes the same for Kafka",
        Assignment(CONSUME, messages=700),
        receives(700),
        prepare=quota(consumer_byte_rate=60_000),
        filled=700,
        broker={"manner": "redpanda"},
    ),
    Scene(
        "consume-data-and-throttle",
        "An answer that carries data and a throttle time is both: its messages come, once, and the throttle is heeded.",
        "KAFKA-21397 (proposed): Kafka's own mute, fetches are not emptied",
        Assignment(CONSUME, messages=700),
        receives(700),
        prepare=quota(consumer_byte_rate=60_000),
        filled=700,
        broker={"manner": "kafka-with-data"},
    ),
    Scene(
        "consume-request-quota",
        "A request quota of a twentieth of a percent slows a consumer down; it stays in its group.",
        "KIP-124, Proposed Changes: request_percentage",
        Assignment(CONSUME, messages=100, config={"session.timeout.ms": 45_000}),
        both(receives(100), stays_in_its_group),
        prepare=quota(request_percentage=0.05),
        filled=100,
        within_ms=90_000,
    ),
    Scene(
        "consume-tightest-request-quota",
        "A hundredth of a percent, under which fetches are answered empty, costs no group and leads to no hurry.",
        "KIP-124, Proposed Changes: request_percentage; Kafka, KafkaApis: a throttled fetch is answered empty",
        Assignment(CONSUME, messages=1_000_000, config={"session.timeout.ms": 45_000}),
        both(joins_once, asks_seldom(3)),
        prepare=quota(request_percentage=0.01),
        filled=60,
        stop_after_ms=25_000,
    ),
    Scene(
        "consume-second-member-in-throttle",
        "A second member that joins in mid-throttle has its share within seconds; together they miss nothing.",
        "KIP-62 (heartbeats in the background); a mute of the leader's connection is none of the coordinator's",
        Assignment(CONSUME, messages=1_000_000, config=_SESSION),
        both(second_has_its_share(_SHARE_S), all_come(600)),
        prepare=throttle(_FETCH, 12_000),
        filled=600,
        partitions=4,
        second_after_ms=2_000,
        stop_after_ms=24_000,
    ),
    Scene(
        "consume-second-member-in-throttle-848",
        "The same with the group protocol of KIP-848, within two heartbeats of both members.",
        "KIP-848, Rebalance process: members hear of a new assignment with their next heartbeat",
        Assignment(CONSUME, messages=1_000_000, config={"group.protocol": "consumer", "max.poll.interval.ms": 30_000}),
        by_kip_848(both(second_has_its_share(_SHARE_848_S), all_come(600))),
        prepare=throttle(_FETCH, 12_000),
        filled=600,
        partitions=4,
        second_after_ms=2_000,
        stop_after_ms=34_000,
    ),
    Scene(
        "consume-throttled-join",
        "A throttle of the join does not make a consumer join again and again.",
        _KIP_219,
        Assignment(CONSUME, messages=200, config=_SESSION),
        both(receives(200), stays_in_its_group),
        prepare=throttle(_JOIN_GROUP, 3_000, times=2),
        filled=200,
    ),
    Scene(
        "consume-leaves-when-closed",
        "A consumer that is closed under a quota leaves its group.",
        "KIP-345; Kafka's consumer protocol, LeaveGroup",
        Assignment(CONSUME, messages=1_000_000),
        both(closes, _leaves),
        prepare=quota(consumer_byte_rate=50_000),
        filled=2_000,
        stop_after_ms=8_000,
    ),
)
