"""`doctor`: what a client of this configuration would meet on a cluster, and what to change."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from kclient_quota.admin.capacity import effective_rate, largest_batch
from kclient_quota.admin.output import entity_text, number
from kclient_quota.config import Backoff
from kclient_quota.errors import ConfigError
from kclient_quota.pacing.sending.worth import SAMPLE, worth
from kclient_quota.quota.entity import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kclient_quota.operate.facts import Facts
    from kclient_quota.operate.top import Row

OK: Final = "ok"
NOTE: Final = "note"
CHANGE: Final = "change"

DESCRIBE_QUOTAS, GET_TELEMETRY = 48, 71
_RELEASES: Final = (
    (31, "after 4.3"),
    (30, "4.3"),
    (28, "4.2"),
    (26, "4.1"),
    (22, "4.0"),
    (21, "3.9"),
    (20, "3.8"),
    (15, "3.7"),
    (12, "3.6"),
    (9, "3.5"),
    (8, "3.4"),
    (4, "3.3"),
)
"""From which metadata.version on it is which release (Kafka's `MetadataVersion`)."""
_DEFAULT_BATCH = 1_000_000
_DEFAULT_QUEUE_KB = 1_048_576
_DEFAULT_FETCH = 1_048_576
_DEFAULT_MESSAGE_TIMEOUT_MS = 300_000
_DEFAULT_MAX_POLL_MS = 300_000
_SMALL_LINGER_MS = 5.0
_LEAVE_OUT = "leave it out: it is fitted to the quota where you do not set it"
_SKEW_MS = 1_000
_FAR_MS = 60_000


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        level: OK, NOTE (worth knowing) or CHANGE (something hurts).
        topic: what it is about, such as "quota".
        said: what is so.
        remedy: what to change; empty where there is nothing to.
    """

    level: str
    topic: str
    said: str
    remedy: str = ""

    def row(self) -> dict[str, str]:
        """For JSON."""
        return asdict(self)


def examine(facts: Facts, conf: Mapping[str, Any], *, plain: bool = False) -> list[Finding]:
    """What follows for a client of this configuration, worst last.

    Args:
        facts: of the cluster.
        conf: the client's, with librdkafka's keys and ours.
        plain: whether the client is one of confluent_kafka's own, not of ours; one of ours that is told to stand back
            (`quota.backoff=off`) is judged as such.
    """
    plain = plain or str(conf.get("quota.backoff", "")).lower() == Backoff.OFF
    found = [Finding(OK, "cluster", f"cluster {facts.cluster_id or '?'} answers; {facts.brokers} brokers")]
    found += [_versions(facts), *_rights(facts)]
    found += _quotas(facts)
    if facts.topic_error:
        said = f"topic {facts.topic} cannot be described: {facts.topic_error}"
        remedy = "check --topic; have the topic made, or let the principal describe it"
        found.append(Finding(CHANGE, "topic", said, remedy))
    limits = {quota.key: quota.value for quota in facts.quotas or ()}
    if PRODUCER_BYTE_RATE in limits:
        found += _producing(facts, conf, limits[PRODUCER_BYTE_RATE], plain=plain)
    if CONSUMER_BYTE_RATE in limits:
        found += _consuming(facts, conf, limits[CONSUMER_BYTE_RATE], plain=plain)
    found += _worth(facts, conf)
    found += _clock(facts)
    found += _telemetry(facts)
    return ordered(found)


def ordered(found: list[Finding]) -> list[Finding]:
    """The worst last, where a terminal shows it."""
    return sorted(found, key=lambda finding: (OK, NOTE, CHANGE).index(finding.level))


def _versions(facts: Facts) -> Finding:
    ours = f"here confluent-kafka {version('confluent-kafka')}"
    level = facts.metadata_version
    if level is None:
        return Finding(OK, "versions", f"no metadata.version: Kafka before 3.3, or a service that says none; {ours}")
    release = next((name for least, name in _RELEASES if level >= least), "before 3.3")
    return Finding(OK, "versions", f"Kafka {release} (metadata.version {level}); {ours}")


def _rights(facts: Facts) -> list[Finding]:
    if DESCRIBE_QUOTAS not in facts.apis:
        said = "brokers do not speak DescribeClientQuotas (Kafka 2.6 and later do): clients learn their quota"
        return [Finding(NOTE, "rights", said)]
    if facts.quotas is None:
        remedy = "grant DESCRIBE_CONFIGS on the cluster, or set producer_byte_rate/consumer_byte_rate in the client"
        return [
            Finding(CHANGE, "rights", f"quotas cannot be asked for, clients have to learn them: {facts.denied}", remedy)
        ]
    return [Finding(OK, "rights", "quotas can be asked for: clients know theirs from the start")]


def _quotas(facts: Facts) -> list[Finding]:
    if facts.quotas is None:
        return []
    found = []
    for quota in facts.quotas:
        over = "".join(f", over {number(each.value)} of {entity_text(each.entity)}" for each in quota.overrides)
        words = f"{quota.key}={number(quota.value)} per broker from {entity_text(quota.decided_by.entity)}{over}"
        found.append(Finding(OK, "quota", words))
    return found or [Finding(OK, "quota", "no quota applies to this client")]


def _leading(facts: Facts) -> int:
    return max(1, len(set(facts.leaders.values())))


def _producing(facts: Facts, conf: Mapping[str, Any], limit: float, *, plain: bool) -> list[Finding]:
    leading = _leading(facts)
    whole = effective_rate(limit, leading, max(leading, len(facts.leaders)))
    found = [Finding(OK, "produce", f"{leading} leading brokers give {number(whole)} B/s in all")]
    if plain:
        found += _queueing(conf, whole)
    else:
        said = "kclient_quota.Producer gives librdkafka only what brokers take; --plain judges confluent_kafka's own"
        found.append(Finding(OK, "produce", said))
    batch = _number(conf, "batch.size", _DEFAULT_BATCH if plain else 0)
    samples, window_s = facts.window or (11, 1.0)
    burst = limit * samples * window_s
    if batch > burst:
        said = f"one batch of batch.size={number(float(batch))} is more than {number(burst)} B, a whole window's"
        remedy = f"batch.size={max(1, int(limit))} or less" if plain else _LEAVE_OUT
        found.append(Finding(CHANGE, "produce", said, remedy))
    linger = _number(conf, "linger.ms", _number(conf, "queue.buffering.max.ms", _SMALL_LINGER_MS))
    if plain and linger <= _SMALL_LINGER_MS:
        said = f"linger.ms={number(linger)}: small batches spend the quota on their headers"
        found.append(Finding(NOTE, "produce", said, "linger.ms=100 costs nobody anything who waits for a quota anyway"))
    return found


def _queueing(conf: Mapping[str, Any], whole: float) -> list[Finding]:
    """What becomes of a plain producer's queue."""
    queue = _number(conf, "queue.buffering.max.kbytes", _DEFAULT_QUEUE_KB) * 1024
    timeout_s = (
        _number(conf, "message.timeout.ms", _number(conf, "delivery.timeout.ms", _DEFAULT_MESSAGE_TIMEOUT_MS)) / 1000
    )
    drain_s = queue / whole
    words = f"a full queue of {number(float(queue))} B (queue.buffering.max.kbytes) takes {drain_s:,.0f} s at this rate"
    found = [Finding(OK, "produce", words)]
    if timeout_s and drain_s > timeout_s:
        said = (
            f"a full queue of {number(float(queue))} B takes {drain_s:,.0f} s at this quota, longer than "
            f"message.timeout.ms={timeout_s * 1000:.0f}: plain librdkafka loses what is still queued then "
            "(measured at 20 kB/s and two minutes: 1,902 of 5,990 messages)"
        )
        most = max(1, int(whole * timeout_s / 2 / 1024))
        remedy = f"use kclient_quota.Producer, which admits only what fits, or queue.buffering.max.kbytes={most}"
        found.append(Finding(CHANGE, "produce", said, remedy))
    return found


def _consuming(facts: Facts, conf: Mapping[str, Any], limit: float, *, plain: bool) -> list[Finding]:
    samples, window_s = facts.window or (11, 1.0)
    most = largest_batch(limit, samples=samples, window_s=window_s)
    found = [Finding(OK, "consume", f"the largest batch that is ever delivered has {number(float(most))} B")]
    if facts.max_message_bytes is not None and facts.max_message_bytes > most:
        said = (
            f"{facts.topic} takes batches up to max.message.bytes={facts.max_message_bytes}: one larger than "
            f"{number(float(most))} B is never delivered under consumer_byte_rate={number(limit)}, without any error"
        )
        needed = -(-facts.max_message_bytes // max(1, int(samples * window_s)))
        found.append(
            Finding(CHANGE, "consume", said, f"consumer_byte_rate of at least {needed}, or a smaller batch.size")
        )
    default = _DEFAULT_FETCH if plain else 0
    wanted = _number(conf, "fetch.message.max.bytes", _number(conf, "max.partition.fetch.bytes", default))
    if wanted > most:
        said = (
            f"fetches of {number(float(wanted))} B are more than a window gives: plain consumers get half of such "
            "a quota, in lumps 12 to 20 s apart"
        )
        remedy = "use kclient_quota.Consumer, which sizes its fetches to the quota" if plain else _LEAVE_OUT
        found.append(Finding(CHANGE, "consume", said, remedy))
    poll_ms = _number(conf, "max.poll.interval.ms", _DEFAULT_MAX_POLL_MS)
    if poll_ms < 2 * samples * window_s * 1000:
        said = f"max.poll.interval.ms={number(poll_ms)} is shorter than two windows: a throttle may cost the membership"
        found.append(Finding(CHANGE, "consume", said, f"max.poll.interval.ms={round(4 * samples * window_s * 1000)}"))
    return found + _stored_batches(facts, most)


def _stored_batches(facts: Facts, most: float) -> list[Finding]:
    """Of those that were looked at, whether one can never be delivered."""
    if facts.stored is None or facts.stored.largest <= most:
        return []
    said = f"{facts.topic} has a batch of {facts.stored.largest} B: it is never delivered under this quota"
    return [Finding(CHANGE, "consume", said, "a larger consumer_byte_rate, or a smaller batch.size of who produces")]


def _worth(facts: Facts, conf: Mapping[str, Any]) -> list[Finding]:
    """What one setting would buy, by some of the topic's messages."""
    if facts.unread:
        return [Finding(NOTE, "worth", f"what compression would buy is not known: {facts.unread}")]
    if facts.stored is None or not facts.stored.records:
        return []
    compression = str(conf.get("compression.type", conf.get("compression.codec", facts.stored.compression)))
    together = len(facts.stored.records) / facts.stored.batches
    best = worth(facts.stored.records[-SAMPLE:], compression=compression, together=together, most_together=SAMPLE)
    if best is None:
        said = f"{facts.topic} as it is stored, {together:.1f} messages in a batch, {compression}: no setting buys much"
        return [Finding(OK, "worth", said)]
    return [Finding(NOTE, "worth", best.sentence(str(facts.topic)), best.setting)]


def _clock(facts: Facts) -> list[Finding]:
    """Quotas are measured with brokers' clocks alone; what else goes by both."""
    if facts.skew is None:
        return [Finding(OK, "clock", "what time it is there nobody tells (Kafka 3.3, DESCRIBE on the cluster)")]
    ahead_ms, uncertain_ms = facts.skew.ahead_ms, facts.skew.uncertain_ms
    off_ms = max(0, abs(ahead_ms) - uncertain_ms)
    where = "ahead of" if ahead_ms > 0 else "behind"
    if off_ms < _SKEW_MS:
        return [Finding(OK, "clock", f"the cluster's clock is within {off_ms + 2 * uncertain_ms} ms of this machine's")]
    said = (
        f"the cluster's clock is {off_ms / 1000:,.1f} s {where} this machine's: throttling does not mind, but messages "
        "carry this machine's time, by which they expire (retention.ms), are searched and, when too far off, refused; "
        "tokens and certificates are valid by it; and pushes of metrics stand at the wrong time"
    )
    return [Finding(CHANGE if off_ms >= _FAR_MS else NOTE, "clock", said, "synchronise both with NTP")]


def watch(rows: list[Row], seconds: float) -> list[Finding]:
    """What the pushes of a running client tell.

    Args:
        rows: of the client, a producer and a consumer perhaps.
        seconds: for how long was watched.
    """
    if not rows:
        said = f"nothing was pushed within {seconds:g} s by a client of this client-id and user"
        remedy = "check that it runs, that enable.metrics.push is not false, and the subscription's interval"
        return [Finding(NOTE, "live", said, remedy)]
    return [_live(row) for row in rows]


def unwatched(error: Exception) -> Finding:
    """What is pushed was not to be seen.

    Args:
        error: why.
    """
    said = f"what the client pushes was not seen: {error}"
    return Finding(CHANGE, "live", said, "give --from-topic or --prometheus what this principal may read")


def _live(row: Row) -> Finding:
    used = "" if row.use is None else f", {row.use:.0%} of the {number(row.limit or 0.0)} B/s of {row.quota}"
    waits = f"calls wait {row.wait_ratio:.0%} of the time"
    lag = "" if row.lag is None else f"; {row.lag:,.0f} records behind"
    fill = "" if row.batch_fill is None else f"; batches {row.batch_fill:.0%} full"
    said = (
        f"the {row.kind} moves {row.rate:,.0f} B/s on its busiest broker{used}; throttled "
        f"{row.throttle_avg_ms:,.0f} ms on average, {row.throttle_max_ms:,.0f} at most; {waits}{lag}{fill}"
    )
    if row.throttle_max_ms >= _LONG_THROTTLE_MS:
        remedy = (
            "throttles this long are longer than requests are waited for: a plain client loses or doubles messages "
            "then, use kclient_quota's; if it is one, who else shares its quota? kclient-quota top"
        )
        return Finding(CHANGE, "live", said, remedy)
    if row.use is not None and row.use >= _NEARLY and row.is_throttled:
        return Finding(NOTE, "live", said, "it needs a larger quota, or has to send less; see what a setting would buy")
    if row.use is not None and row.use < _HARDLY and row.is_throttled:
        return Finding(NOTE, "live", said, "it is held up far below its limit: who else shares it? kclient-quota top")
    return Finding(OK, "live", said)


_LONG_THROTTLE_MS = 30_000
_NEARLY, _HARDLY = 0.85, 0.6


def _telemetry(facts: Facts) -> list[Finding]:
    if GET_TELEMETRY not in facts.apis:
        said = "brokers have no receiver of client telemetry (KIP-714): nobody sees who is throttled"
        return [Finding(NOTE, "telemetry", said, "configure a ClientTelemetryReceiver plug-in as metric.reporters")]
    if facts.subscriptions is None:
        return [Finding(NOTE, "telemetry", "brokers take client telemetry; who is subscribed to they do not tell us")]
    pushing = [each for each in facts.subscriptions if each.metrics]
    if not pushing:
        remedy = "kafka-client-metrics --alter --generate-name --metrics '*' --interval 60000 --bootstrap-server ..."
        return [Finding(NOTE, "telemetry", "brokers take client telemetry, but nothing is subscribed to", remedy)]
    shown = ", ".join(f"{each.name} every {each.interval_ms} ms" for each in pushing)
    return [Finding(OK, "telemetry", f"subscriptions: {shown}")]


def _number(conf: Mapping[str, Any], key: str, default: float) -> float:
    value = conf.get(key, default)
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{key}={value!r}: that is no number") from None
