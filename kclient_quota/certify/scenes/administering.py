"""Scenes for client telemetry (KIP-714) and for quotas of changes to the cluster (KIP-599)."""

from itertools import pairwise
from typing import Final

from kclient_quota.broker.server import EmbeddedBroker
from kclient_quota.certify.driver import CREATE_TOPICS, PRODUCE, Assignment
from kclient_quota.certify.scene import Judge, Prepare, Scene
from kclient_quota.certify.scenes.producing import all_delivered, both
from kclient_quota.certify.seen import Seen
from kclient_quota.certify.verdict import Verdict, absent, failed, passed, weak

_PRODUCE, _CREATE_TOPICS, _GET_SUBSCRIPTIONS, _PUSH = 0, 19, 71, 72
_INTERVAL_MS = 1_000
_SUBSCRIPTION_CHANGED = 117
_KIP_714: Final = "KIP-714"
_ON = {"enable.metrics.push": True}


def _has_telemetry(judge: Judge) -> Judge:
    """The question goes to those only who know KIP-714 at all."""
    return lambda seen: judge(seen) if seen.of_api(_GET_SUBSCRIPTIONS) else absent("it has no client telemetry")


def pushes_in_time(seen: Seen) -> Verdict:
    """The first push after half to one and a half intervals, the others an interval apart."""
    if not seen.pushes:
        return failed("it never pushed")
    asked = seen.of_api(_GET_SUBSCRIPTIONS)
    regular = [at_ms for at_ms, terminating, _ in seen.pushes if not terminating]
    early = [later - earlier for earlier, later in pairwise(regular) if later - earlier < _INTERVAL_MS * 0.9]
    if early:
        return failed(f"a push came {early[0]} ms after the one before; the interval is {_INTERVAL_MS} ms")
    if asked and regular and not 0.4 * _INTERVAL_MS <= regular[0] - asked[0].at_ms <= 1.7 * _INTERVAL_MS:
        return weak(f"the first push came {regular[0] - asked[0].at_ms} ms after the subscription")
    return passed(f"{len(seen.pushes)} pushes, none early")


def pushes_last(seen: Seen) -> Verdict:
    """The last push says that it is."""
    if not seen.pushes:
        return failed("it never pushed")
    last = [terminating for _, terminating, _ in seen.pushes]
    if not last[-1]:
        return failed("closed without a terminating push")
    return (
        failed("it pushed after its terminating push") if True in last[:-1] else passed("the last push is terminating")
    )


def one_instance(seen: Seen) -> Verdict:
    """One id for the client's whole life."""
    ids = {instance for _, _, instance in seen.pushes}
    return passed("one client instance id") if len(ids) == 1 else failed(f"{len(ids)} client instance ids")


def alive_while_throttled(seen: Seen) -> Verdict:
    """Pushes go on while the data connection is muted."""
    throttled = [request for request in seen.of_api(_PRODUCE) if request.throttle_time_ms >= 3_000]
    if not throttled:
        return failed("the client was never throttled")
    begin_ms, end_ms = throttled[0].at_ms + 500, throttled[0].at_ms + throttled[0].throttle_time_ms - 200
    during = sum(begin_ms <= at_ms <= end_ms for at_ms, _, _ in seen.pushes)
    return passed(f"{during} pushes during the throttle") if during else failed("no push while it was throttled")


def asks_again_when_told(seen: Seen) -> Verdict:
    """UNKNOWN_SUBSCRIPTION_ID means: ask for the subscription again, at once."""
    asked, pushed = seen.of_api(_GET_SUBSCRIPTIONS), seen.of_api(_PUSH)
    if not pushed:
        return failed("it never pushed")
    if len(asked) < 2:
        return failed("it never asked for its subscription again after it had changed")
    return passed(f"it asked {len(asked)} times")


def goes_on_after(most_early: int) -> Judge:
    """A push that was refused is not repeated in a hurry, and a later one is taken."""

    def judge(seen: Seen) -> Verdict:
        tried = seen.of_api(_PUSH)
        if not tried:
            return failed("it never pushed")
        if seen.pushes and seen.pushes[-1][1]:
            tried = tried[:-1]  # a terminating push may come at any time
        early = [later for earlier, later in pairwise(tried) if later.at_ms - earlier.at_ms < _INTERVAL_MS * 0.4]
        if len(early) > most_early:
            return failed(f"{len(early)} pushes came within less than half an interval of the one before")
        taken = [at_ms for at_ms, terminating, _ in seen.pushes if not terminating]
        return passed(f"{len(taken)} later pushes were taken") if taken else failed("no later push was taken")

    return judge


def heeds_a_throttled_get(seen: Seen) -> Verdict:
    """A throttle of the question is waited out before the next request of telemetry."""
    asked = [request for request in seen.of_api(_GET_SUBSCRIPTIONS) if request.throttle_time_ms]
    if not asked:
        return failed("it never asked for its subscription")
    end_ms = asked[0].at_ms + asked[0].throttle_time_ms
    early = [
        s
        for s in seen.sent
        if s.api_key in {_GET_SUBSCRIPTIONS, _PUSH} and asked[0].at_ms + 100 < s.at_ms < end_ms - 150
    ]
    return failed(f"{len(early)} requests of telemetry during the throttle") if early else passed("it waited")


def creates(count: int) -> Judge:
    """Every topic is there, and each was reported so."""

    def judge(seen: Seen) -> Verdict:
        made = sum("-made-" in name for name in seen.topics)
        if made < count or len(seen.acknowledged) < count:
            return failed(f"{made} of {count} topics were made, {len(seen.acknowledged)} reported")
        refused = sum(request.throttle_time_ms > 0 for request in seen.of_api(_CREATE_TOPICS))
        return passed(f"{made} topics, throttled {refused} times")

    return judge


def _subscribed(cluster: EmbeddedBroker, _name: str) -> None:
    cluster.set_client_metrics("all", interval_ms=_INTERVAL_MS)


def _throttled(api_key: int, throttle_ms: int) -> Prepare:
    def prepare(cluster: EmbeddedBroker, name: str) -> None:
        _subscribed(cluster, name)
        cluster.throttle_next(api_key, throttle_ms)

    return prepare


def _refused(error: str) -> Prepare:
    """The first push is answered with an error."""

    def prepare(cluster: EmbeddedBroker, name: str) -> None:
        _subscribed(cluster, name)
        cluster.faults.inject_error(_PUSH, error, count=1)

    return prepare


def _changed(cluster: EmbeddedBroker, _name: str) -> None:
    cluster.set_client_metrics("all", metrics=("org.apache.kafka.producer.",), interval_ms=_INTERVAL_MS)


_STEADY = Assignment(PRODUCE, messages=80, value_bytes=100, pause_ms=100, config=_ON)

_SILENT: Final = (
    "thomhurst/Dekaf#2263: “KIP-219 requires a client receiving an applicable response with throttle time X to refrain "
    "from sending any further requests to that broker for X.” Pushes go over the connection that is muted."
)

SCENES = (
    Scene(
        "telemetry-interval",
        "Pushes come no earlier than the push interval allows, the first one with jitter.",
        f"{_KIP_714}, Client behavior: interval and jitter",
        _STEADY,
        _has_telemetry(both(pushes_in_time, one_instance, all_delivered(80))),
        prepare=_subscribed,
    ),
    Scene(
        "telemetry-terminating",
        "A client that closes pushes once more, with the terminating flag.",
        f"{_KIP_714}, Client termination",
        _STEADY,
        _has_telemetry(pushes_last),
        prepare=_subscribed,
    ),
    Scene(
        "telemetry-changed-subscription",
        "When the subscription changes, the client asks for it again.",
        f"{_KIP_714}, error code UNKNOWN_SUBSCRIPTION_ID ({_SUBSCRIPTION_CHANGED})",
        _STEADY,
        _has_telemetry(asks_again_when_told),
        prepare=_subscribed,
        meanwhile=_changed,
        after_ms=4_000,
    ),
    Scene(
        "telemetry-while-throttled",
        "Telemetry tells of a throttle while it lasts.",
        f"{_KIP_714}, Motivation: metrics when a client has problems",
        Assignment(PRODUCE, messages=160, value_bytes=100, pause_ms=50, config=_ON),
        _has_telemetry(alive_while_throttled),
        prepare=_throttled(_PRODUCE, 6_000),
        nobody=_SILENT,
    ),
    Scene(
        "telemetry-throttled-get",
        "A throttled GetTelemetrySubscriptions is waited out.",
        f"{_KIP_714}, GetTelemetrySubscriptions throttling; KIP-219",
        _STEADY,
        _has_telemetry(heeds_a_throttled_get),
        prepare=_throttled(_GET_SUBSCRIPTIONS, 3_000),
    ),
    Scene(
        "telemetry-too-large",
        "TELEMETRY_TOO_LARGE does not end telemetry: the next push comes at its time.",
        f"{_KIP_714}, error code TELEMETRY_TOO_LARGE (118)",
        _STEADY,
        _has_telemetry(both(goes_on_after(0), all_delivered(80))),
        prepare=_refused("TELEMETRY_TOO_LARGE"),
    ),
    Scene(
        "telemetry-unsupported-compression",
        "UNSUPPORTED_COMPRESSION_TYPE makes a client push in another way, or ask again how it may.",
        f"{_KIP_714}, error code UNSUPPORTED_COMPRESSION_TYPE (76)",
        _STEADY,
        # the next push may come at once: it is another one
        _has_telemetry(both(goes_on_after(1), all_delivered(80))),
        prepare=_refused("UNSUPPORTED_COMPRESSION_TYPE"),
    ),
    Scene(
        "create-topics-under-quota",
        "THROTTLING_QUOTA_EXCEEDED is waited out and tried again: all topics are made.",
        "KIP-599, Proposed Changes: clients retry after throttle_time_ms",
        Assignment(CREATE_TOPICS, messages=30),
        creates(30),
        prepare=lambda cluster, name: cluster.set_quota(client_id=name, controller_mutation_rate=2.0),
    ),
)
