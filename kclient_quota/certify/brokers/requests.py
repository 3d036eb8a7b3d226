"""Rows for request time (KIP-124) and for creating and deleting (KIP-599)."""

from collections.abc import Callable
from typing import Final

from kclient_quota.certify.brokers.probe import Probe
from kclient_quota.certify.brokers.row import Row
from kclient_quota.certify.brokers.talker import Talker, Told
from kclient_quota.certify.verdict import Verdict, failed, passed
from kclient_quota.quota.entity import CLIENT_ID
from kclient_quota.wire.error_codes import ErrorCode
from kclient_quota.wire.messages import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from kclient_quota.wire.schema import Request

_PERCENT: Final = 0.001
_TRIES: Final = 40
_RATE: Final = 0.5
_PARTITIONS: Final = 8
"""More than a burst of eleven seconds allows at that rate, so the next change has to wait."""
_QUOTA: Final = 5_000


def _busy(probe: Probe) -> tuple[Talker, Told | None]:
    """A client that asks until it is told to wait."""
    probe.set_quota({CLIENT_ID: probe.name}, request_percentage=_PERCENT)
    talker = probe.talker()
    for _ in range(_TRIES):
        told = talker.idle()
        if told.throttle_ms:
            return talker, told
    return talker, None


def _request_time(probe: Probe) -> Verdict:
    _, told = _busy(probe)
    if told is None:
        return failed(f"{_TRIES} requests were never throttled at {_PERCENT} %")
    most_ms = probe.window().sample_ms
    return (passed if told.throttle_ms <= most_ms else failed)(
        f"throttled for {told.throttle_ms} ms, at most {most_ms}"
    )


def _request_muted(probe: Probe) -> Verdict:
    talker, told = _busy(probe)
    if told is None:
        return failed("never throttled")
    waited_ms = (talker.idle().at - told.at) * 1000
    why = f"throttled for {told.throttle_ms} ms, the next answer came after {waited_ms:.0f} ms"
    return passed(why) if told.throttle_ms * 0.9 <= waited_ms <= told.throttle_ms + 10_000 else failed(why)


def _longer_counts(probe: Probe) -> Verdict:
    topic = probe.topic()
    window = probe.window()
    quotas = {"producer_byte_rate": _QUOTA, "request_percentage": _PERCENT}
    probe.set_quota({CLIENT_ID: probe.name}, topic, **quotas)
    talker = probe.talker(topic=topic)
    told = talker.produce(topic, int(_QUOTA * (window.whole_ms / 1000 + 3)))
    why = f"3 s for bytes, at most {window.sample_ms} ms for time: told {told.throttle_ms} ms"
    return passed(why) if 2_800 <= told.throttle_ms <= 3_300 else failed(why)


def _creation(name: str, partitions: int = 1) -> CreateTopicsRequest:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=-1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic])


def _growth(name: str) -> CreatePartitionsRequest:
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=_PARTITIONS + 1, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)


def _removal(name: str) -> DeleteTopicsRequest:
    state = DeleteTopicsRequest.DeleteTopicState(name=name)
    return DeleteTopicsRequest(topics=[state], topic_names=[name], timeout_ms=10_000)


def _overdrawn(probe: Probe) -> tuple[str, Told]:
    """A topic that took more than the quota allows; what that was answered, on a connection of its own."""
    topic = f"{probe.name}-made"
    probe.forget_topic(topic)
    probe.set_quota({CLIENT_ID: probe.name}, controller_mutation_rate=_RATE)
    return topic, probe.talker().ask(_creation(topic, _PARTITIONS))


def _overdraft(probe: Probe) -> Verdict:
    _, told = _overdrawn(probe)
    (made,) = told.answer.topics
    why = f"error {made.error_code}, throttled for {told.throttle_ms} ms"
    return failed(why) if made.error_code else passed(why)


def _refused(change: Callable[[str], Request]) -> Callable[[Probe], Verdict]:
    def judge(probe: Probe) -> Verdict:
        topic, _ = _overdrawn(probe)
        told = probe.talker().ask(change(topic))
        rows = getattr(told.answer, "responses", None) or getattr(told.answer, "results", None) or told.answer.topics
        why = f"error {rows[0].error_code}, throttled for {told.throttle_ms} ms"
        refused = rows[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED and told.throttle_ms
        return passed(why) if refused else failed(why)

    return judge


def _old_are_delayed(probe: Probe) -> Verdict:
    topic, _ = _overdrawn(probe)
    probe.forget_topic(f"{topic}-2")
    told = probe.talker().ask(_creation(f"{topic}-2"), 5)
    (made,) = told.answer.topics
    why = f"CreateTopics v5: error {made.error_code}, throttled for {told.throttle_ms} ms"
    return passed(why) if not made.error_code and told.throttle_ms else failed(why)


_KIP_124, _KIP_599 = "KIP-124, Proposed Changes", "KIP-599, Proposed Changes"

ROWS = (
    Row(
        "request-time",
        "Whoever exceeds request_percentage is throttled, by one sample of the window at most.",
        f"{_KIP_124}: throttle time is limited to the window size",
        _request_time,
    ),
    Row("request-time-muted", "So long nothing is read from the connection.", f"{_KIP_124}; KIP-219", _request_muted),
    Row("longer-throttle-counts", "Of bytes and time the longer throttle counts.", _KIP_124, _longer_counts),
    Row(
        "mutation-overdraft",
        "One change may exceed what controller_mutation_rate has saved up; it is done.",
        f"{_KIP_599}: token bucket; one burst may overdraw it",
        _overdraft,
    ),
    Row(
        "mutation-create-refused",
        "Then CreateTopics is refused with THROTTLING_QUOTA_EXCEEDED and a throttle time.",
        _KIP_599,
        _refused(lambda topic: _creation(f"{topic}-2")),
    ),
    Row("mutation-grow-refused", "So is CreatePartitions.", _KIP_599, _refused(_growth)),
    Row("mutation-delete-refused", "So is DeleteTopics.", _KIP_599, _refused(_removal)),
    Row(
        "mutation-old-version-delayed",
        "Older versions are delayed in place of refused.",
        f"{_KIP_599}, Compatibility: only new versions get the error",
        _old_are_delayed,
    ),
)
