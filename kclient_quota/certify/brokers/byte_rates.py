"""Rows for byte rates (KIP-13) and for how a broker delays those who exceed them (KIP-219)."""

import time
from typing import Final

from kclient_quota.certify.brokers.probe import Probe, about
from kclient_quota.certify.brokers.row import Row
from kclient_quota.certify.brokers.talker import Talker, Told, Topic
from kclient_quota.certify.verdict import Verdict, failed, passed, worst
from kclient_quota.quota.entity import CLIENT_ID

_QUOTA: Final = 5_000
_OVER_S: Final = 2.0
_FAR_OVER_S: Final = 9.0
"""So long that even a busy machine's slow answer is seen to have come before it."""
_SLOW_MS: Final = 10_000
"""How much later than the end of a throttle an answer may come."""
_OLD_PRODUCE: Final = 5
"""Clients that send it do not hold themselves back (KIP-219)."""


def _over(probe: Probe, seconds: float = _OVER_S) -> int:
    """Bytes that a client with a fresh sensor is throttled for by so many seconds."""
    return int(_QUOTA * (probe.window().whole_ms / 1000 + seconds))


def _limited(probe: Probe) -> tuple[Topic, Talker]:
    """A topic and a client with a quota."""
    topic = probe.topic()
    probe.set_quota({CLIENT_ID: probe.name}, topic, producer_byte_rate=_QUOTA)
    return topic, probe.talker(topic=topic)


def _throttled(probe: Probe, seconds: float = _OVER_S, version: int | None = None) -> tuple[Topic, Talker, Told]:
    """And its first request, which is over it."""
    topic, talker = _limited(probe)
    return topic, talker, talker.produce(topic, _over(probe, seconds), version)


def _formula(probe: Probe) -> Verdict:
    _, _, told = _throttled(probe)
    return about("a request over the quota", told.throttle_ms, told.nbytes / _QUOTA * 1000 - probe.window().whole_ms)


def _burst(probe: Probe) -> Verdict:
    topic, talker = _limited(probe)
    told = talker.produce(topic, _over(probe, -_OVER_S))
    why = f"{told.nbytes} bytes at once: throttled for {told.throttle_ms} ms"
    return failed(why) if told.throttle_ms else passed(why)


def _answers_first(probe: Probe) -> Verdict:
    _, _, told = _throttled(probe, _FAR_OVER_S)
    why = f"answered after {told.took_ms:.0f} ms, throttled for {told.throttle_ms} ms"
    return passed(why) if told.took_ms < told.throttle_ms / 2 else failed(why)


def _answers_old_clients_first(probe: Probe) -> Verdict:
    _, _, told = _throttled(probe, _FAR_OVER_S, _OLD_PRODUCE)
    why = f"Produce v{_OLD_PRODUCE}: answered after {told.took_ms:.0f} ms, throttled for {told.throttle_ms} ms"
    return passed(why) if told.throttle_ms and told.took_ms < told.throttle_ms / 2 else failed(why)


def _mutes(probe: Probe) -> Verdict:
    _, talker, told = _throttled(probe)
    waited_ms = (talker.idle().at - told.at) * 1000
    why = f"throttled for {told.throttle_ms} ms, the next answer came after {waited_ms:.0f} ms"
    return passed(why) if told.throttle_ms * 0.9 <= waited_ms <= told.throttle_ms + _SLOW_MS else failed(why)


def _mutes_unanswered(probe: Probe) -> Verdict:
    topic, talker = _limited(probe)
    probe.talker(f"{probe.name}-writer", topic).produce(topic, 1)  # now it is served for certain
    wanted_ms = _over(probe) / _QUOTA * 1000 - probe.window().whole_ms
    begin = time.monotonic()
    talker.produce_unanswered(topic, _over(probe))
    took_ms = (talker.idle().at - begin) * 1000
    others_ms = probe.talker(topic=topic).idle().took_ms
    why = (
        f"{wanted_ms:.0f} ms are due; the next request on the connection took {took_ms:.0f} ms, another {others_ms:.0f}"
    )
    return passed(why) if wanted_ms * 0.9 <= took_ms <= wanted_ms + _SLOW_MS else failed(why)


def _mutes_one_connection(probe: Probe) -> Verdict:
    topic, talker = _limited(probe)
    other = probe.talker(topic=topic)
    other.idle()
    told = talker.produce(topic, _over(probe, _FAR_OVER_S))
    took_ms = other.idle().took_ms
    why = f"throttled for {told.throttle_ms} ms; a request on the other connection took {took_ms:.0f} ms"
    return passed(why) if took_ms < told.throttle_ms / 2 else failed(why)


def _one_account(probe: Probe) -> Verdict:
    topic, talker = _limited(probe)
    half = int(_over(probe) / 2)
    first = talker.produce(topic, half)
    second = probe.talker(topic=topic).produce(topic, half)
    if first.throttle_ms:
        return failed(f"half of what is too much was throttled for {first.throttle_ms} ms")
    wanted_ms = (first.nbytes + second.nbytes) / _QUOTA * 1000 - probe.window().whole_ms
    # the second comes a little later, in a window that has grown by that, though by no more than a sample
    return about("two connections, half each", second.throttle_ms, wanted_ms - probe.window().sample_ms / 2, 620)


def _remembers(probe: Probe) -> Verdict:
    topic, talker, told = _throttled(probe)
    talker.close()
    again = probe.talker(topic=topic).produce(topic, 1)
    why = f"throttled for {told.throttle_ms} ms, for {again.throttle_ms} ms again on a new connection"
    return passed(why) if again.throttle_ms > told.throttle_ms / 3 else failed(why)


def _leaves_others_alone(probe: Probe) -> Verdict:
    topic, _, told = _throttled(probe)
    other = probe.talker(f"{probe.name}-other", topic).produce(topic, _over(probe))
    why = f"{told.throttle_ms} ms for the one, {other.throttle_ms} ms for the other"
    return failed(why) if other.throttle_ms or not told.throttle_ms else passed(why)


def _forgives(probe: Probe) -> Verdict:
    topic, talker = _limited(probe)
    probe.set_quota({CLIENT_ID: probe.name}, topic, producer_byte_rate=None)
    told = talker.produce(topic, _over(probe))
    return (
        failed(f"throttled for {told.throttle_ms} ms without a quota") if told.throttle_ms else passed("not throttled")
    )


def _follows_a_change(probe: Probe) -> Verdict:
    topic, talker = _limited(probe)
    before = talker.produce(topic, _over(probe, -_OVER_S))
    probe.set_quota({CLIENT_ID: probe.name}, topic, producer_byte_rate=_QUOTA / 2)
    lowered = talker.produce(topic, 1)
    probe.set_quota({CLIENT_ID: probe.name}, topic, producer_byte_rate=_QUOTA * 4)
    raised = probe.talker(topic=topic).produce(topic, 1)
    why = (
        f"{before.throttle_ms} ms, at half the quota {lowered.throttle_ms} ms, at four times it {raised.throttle_ms} ms"
    )
    return passed(why) if lowered.throttle_ms and not before.throttle_ms and not raised.throttle_ms else failed(why)


def _readable(probe: Probe, records: int) -> tuple[Topic, Talker]:
    """A topic with single records of 1 kB, and a reader with a quota."""
    topic = probe.topic()
    writer = probe.talker(f"{probe.name}-writer", topic)
    for _ in range(records):
        writer.produce(topic, 1_000)
    probe.set_quota({CLIENT_ID: probe.name}, topic, consumer_byte_rate=_QUOTA)
    return topic, probe.talker(topic=topic)


def _until_throttled(topic: Topic, talker: Talker) -> tuple[Told, int]:
    """Fetch the same again and again until that is too much."""
    for _ in range(20):
        told, got = talker.fetch(topic, 0, 20_000)
        if told.throttle_ms:
            return told, got
    return told, got


def _fetch_empty(probe: Probe) -> Verdict:
    told, got = _until_throttled(*_readable(probe, 25))
    if not told.throttle_ms:
        return failed("never throttled")
    why = f"throttled for {told.throttle_ms} ms with {got} bytes of records"
    return failed(why) if got else passed(why)


def _fetch_not_counted(probe: Probe) -> Verdict:
    topic, talker = _readable(probe, 25)
    told, _ = _until_throttled(topic, talker)
    talker.close()
    again = probe.talker(topic=topic)
    later, got = again.fetch(topic, 0, 20_000)
    why = f"throttled for {told.throttle_ms} ms, at once again for {later.throttle_ms} ms"
    # counted, the answer that was not sent would add four seconds
    return passed(why) if later.throttle_ms <= told.throttle_ms and not got else failed(why)


def _fetch_cut(probe: Probe) -> Verdict:
    window_ms = probe.window().whole_ms
    most = _QUOTA * window_ms // 1000
    topic, talker = _readable(probe, most // 1_000 + 20)
    begin = time.monotonic()
    while time.monotonic() - begin < 10:
        told, got = talker.fetch(topic, 0)
        if not told.throttle_ms:
            return (passed if 0 < got <= most else failed)(f"{got} bytes at once; a window's worth is {most}")
    return failed("nothing came in ten seconds")


def _fetch_answers_first(probe: Probe) -> Verdict:
    topic, talker = _readable(probe, 25)
    told, _ = _until_throttled(topic, talker)
    waited_ms = (talker.idle().at - told.at) * 1000
    first = (
        passed("answered first")
        if told.took_ms < told.throttle_ms * 0.9
        else failed(f"answered after {told.took_ms:.0f} ms")
    )
    why = f"throttled for {told.throttle_ms} ms, the next answer came after {waited_ms:.0f} ms"
    return worst(
        first, passed(why) if told.throttle_ms * 0.9 <= waited_ms <= told.throttle_ms + _SLOW_MS else failed(why)
    )


_KIP_13, _KIP_219 = "KIP-13", "KIP-219, Proposed Changes"

ROWS = (
    Row(
        "produce-formula",
        "Whoever exceeds producer_byte_rate is told to wait as long as it takes to be within it again.",
        f"{_KIP_13}, Quota Enforcement: delay = (O - T) / T x W",
        _formula,
    ),
    Row("produce-burst", "A whole window's worth may be sent at once.", f"{_KIP_13}: quota.window.num samples", _burst),
    Row("produce-answered-first", "The answer comes before the delay.", _KIP_219, _answers_first),
    Row(
        "produce-old-version-answered-first",
        "So it does for clients that do not hold themselves back.",
        _KIP_219,
        _answers_old_clients_first,
    ),
    Row("produce-muted", "Afterwards nothing is read from the connection for that time.", _KIP_219, _mutes),
    Row(
        "produce-unanswered-muted",
        "So it is after a request that wants no answer (acks=0), though nobody is told.",
        f"{_KIP_219}; Kafka, KafkaApis.handleProduceRequest",
        _mutes_unanswered,
    ),
    Row("produce-one-connection-muted", "Other connections are not muted.", _KIP_219, _mutes_one_connection),
    Row("produce-one-account", "All connections of a client-id share its quota.", _KIP_13, _one_account),
    Row("produce-reconnect", "A new connection does not start anew.", f"{_KIP_13}: usage by client-id", _remembers),
    Row("produce-others", "Clients without a quota are not throttled.", _KIP_13, _leaves_others_alone),
    Row("quota-removed", "Without its quota a client is not throttled.", "KIP-21: dynamic configuration", _forgives),
    Row("quota-changed", "A changed quota holds for what has been sent already.", "KIP-21", _follows_a_change),
    Row(
        "fetch-empty",
        "A fetch over consumer_byte_rate is answered without records.",
        f"{_KIP_219}: fetch responses are emptied before they are throttled",
        _fetch_empty,
    ),
    Row("fetch-not-counted", "What was not sent is not counted.", "KAFKA-6526; KIP-219", _fetch_not_counted),
    Row(
        "fetch-cut-to-window",
        "No fetch brings more than a window's worth.",
        "KIP-13; Kafka, ClientQuotaManager.maxValueInQuotaWindow",
        _fetch_cut,
    ),
    Row(
        "fetch-muted", "A throttled fetch is answered at once and the connection muted.", _KIP_219, _fetch_answers_first
    ),
)
