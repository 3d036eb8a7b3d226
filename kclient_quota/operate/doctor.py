"""`doctor`: what a client of this configuration would meet on a cluster, and what to change."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kclient_quota.admin.capacity import effective_rate, largest_batch
from kclient_quota.admin.output import entity_text, number
from kclient_quota.cluster.configs import ResourceType, describe_configs, window_of
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.operate.clocks import Skew, skew
from kclient_quota.operate.stored import Stored, read_some
from kclient_quota.pacing.worth import SAMPLE, worth
from kclient_quota.quota.entity import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, ClientQuotaEntity
from kclient_quota.wire.error_codes import error_name
from kclient_quota.wire.messages import ApiVersionsRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kclient_quota.admin.client_metrics import ClientMetricsSubscription
    from kclient_quota.admin.effective import EffectiveQuota
    from kclient_quota.admin.quotas import QuotaAdmin
    from kclient_quota.operate.top import Row

OK: Final = "ok"
NOTE: Final = "note"
CHANGE: Final = "change"

DESCRIBE_QUOTAS, GET_TELEMETRY = 48, 71
_DEFAULT_BATCH = 1_000_000
_DEFAULT_QUEUE_KB = 1_048_576
_DEFAULT_MESSAGE_TIMEOUT_MS = 300_000
_DEFAULT_MAX_POLL_MS = 300_000
_SMALL_LINGER_MS = 5.0
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


@dataclass(slots=True)
class Facts:
    """What a cluster told about itself and this client; None where it did not.

    Attributes:
        cluster_id: the cluster's.
        brokers: how many there are.
        apis: numbers of the APIs that brokers speak.
        quotas: what applies to the client.
        denied: why quotas could not be asked for.
        leaders: who leads each partition of the topic.
        topic: its name.
        topic_error: why it could not be described.
        window: samples and seconds of the brokers' quota window.
        max_message_bytes: the topic's.
        subscriptions: of client metrics.
        skew: how far the cluster's clock is ahead of this machine's.
        stored: some of the topic's messages.
        unread: why they were not read, if so.
    """

    cluster_id: str = ""
    brokers: int = 0
    apis: frozenset[int] = frozenset()
    quotas: list[EffectiveQuota] | None = None
    denied: str = ""
    leaders: dict[int, int] = field(default_factory=dict)
    topic: str | None = None
    topic_error: str = ""
    window: tuple[int, float] | None = None
    max_message_bytes: int | None = None
    subscriptions: list[ClientMetricsSubscription] | None = None
    skew: Skew | None = None
    stored: Stored | None = None
    unread: str = ""


def gather(
    admin: QuotaAdmin, entity: ClientQuotaEntity, topic: str | None, *, timeout_s: float, unix_ms: Callable[[], int]
) -> Facts:
    """Ask a cluster; what it keeps to itself is left out.

    Args:
        admin: whom to ask.
        entity: whose quotas.
        topic: what it produces to or consumes, if any: a few of its messages are read.
        timeout_s: for each request.
        unix_ms: this machine's wall clock.

    Raises:
        ClusterError: it cannot be reached at all.
    """
    timeout_ms = round(timeout_s * 1000)
    metadata = admin.describe_cluster([topic] if topic else (), request_timeout=timeout_s).result()
    facts = Facts(metadata.cluster_id or "", len(metadata.brokers), topic=topic)
    answer = admin.client.ask(ApiVersionsRequest(), timeout_ms=timeout_ms)
    facts.apis = frozenset(api.api_key for api in answer.api_keys)
    futures = admin.describe_effective_client_quotas([entity], include_overrides=True, request_timeout=timeout_s)
    try:
        facts.quotas = futures[entity].result()
    except ClusterError as error:
        facts.denied = str(error)
    if topic:
        if topic in metadata.topic_errors:
            facts.topic_error = error_name(metadata.topic_errors[topic])
        facts.leaders = {partition: leader for (_, partition), leader in metadata.leaders.items() if leader >= 0}
        _read_topic(admin, facts, topic, timeout_ms)
    try:
        facts.skew = skew(admin.client, unix_ms, timeout_ms=timeout_ms)
    except ClusterError:
        facts.skew = None  # who may not ask, or asks a Kafka before 3.3, is told no time
    _ask_configs(admin, facts, min(metadata.brokers, default=0), timeout_ms)
    try:
        names = admin.list_client_metrics_subscriptions(request_timeout=timeout_s).result()
        found = [admin.describe_client_metrics_subscription(each, request_timeout=timeout_s).result() for each in names]
        facts.subscriptions = [each for each in found if each is not None]
    except (ClusterError, ConfigError):
        facts.subscriptions = None
    return facts


def _read_topic(admin: QuotaAdmin, facts: Facts, topic: str, timeout_ms: int) -> None:
    if facts.topic_error or not facts.leaders:
        return
    try:
        facts.stored = read_some(admin.client, topic, facts.leaders, timeout_ms=timeout_ms)
    except ClusterError as error:
        facts.unread = str(error)


def _ask_configs(admin: QuotaAdmin, facts: Facts, broker: int, timeout_ms: int) -> None:
    try:
        entries = describe_configs(admin.client, ResourceType.BROKER, str(broker), timeout_ms=timeout_ms)
        window = window_of({name: entry.value for name, entry in entries.items()})
        facts.window = (window[0], window[1] / 1000) if window else None
        if facts.topic and not facts.topic_error:
            entries = describe_configs(admin.client, ResourceType.TOPIC, facts.topic, timeout_ms=timeout_ms)
            entry = entries.get("max.message.bytes")
            facts.max_message_bytes = int(entry.value) if entry and entry.value else None
    except ClusterError:
        return  # who may not see configurations has the defaults' arithmetic


def examine(facts: Facts, conf: Mapping[str, Any]) -> list[Finding]:
    """What follows for a client of this configuration, worst last.

    Args:
        facts: of the cluster.
        conf: the client's, with librdkafka's keys.
    """
    found = [Finding(OK, "cluster", f"cluster {facts.cluster_id or '?'} answers; {facts.brokers} brokers")]
    found += _rights(facts)
    found += _quotas(facts)
    if facts.topic_error:
        found.append(
            Finding(CHANGE, "topic", f"topic {facts.topic} cannot be described: {facts.topic_error}", "--topic")
        )
    limits = {quota.key: quota.value for quota in facts.quotas or ()}
    if PRODUCER_BYTE_RATE in limits:
        found += _producing(facts, conf, limits[PRODUCER_BYTE_RATE])
    if CONSUMER_BYTE_RATE in limits:
        found += _consuming(facts, conf, limits[CONSUMER_BYTE_RATE])
    found += _worth(facts, conf)
    found += _clock(facts)
    found += _telemetry(facts)
    return ordered(found)


def ordered(found: list[Finding]) -> list[Finding]:
    """The worst last, where a terminal shows it."""
    return sorted(found, key=lambda finding: (OK, NOTE, CHANGE).index(finding.level))


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


def _producing(facts: Facts, conf: Mapping[str, Any], limit: float) -> list[Finding]:
    leading = _leading(facts)
    whole = effective_rate(limit, leading, max(leading, len(facts.leaders)))
    found = [Finding(OK, "produce", f"{leading} leading brokers give {number(whole)} B/s in all")]
    queue = _number(conf, "queue.buffering.max.kbytes", _DEFAULT_QUEUE_KB) * 1024
    timeout_s = (
        _number(conf, "message.timeout.ms", _number(conf, "delivery.timeout.ms", _DEFAULT_MESSAGE_TIMEOUT_MS)) / 1000
    )
    drain_s = queue / whole
    words = f"a full queue of {number(float(queue))} B (queue.buffering.max.kbytes) takes {drain_s:,.0f} s at this rate"
    found.append(Finding(OK, "produce", words))
    if timeout_s and drain_s > timeout_s:
        said = (
            f"a full queue of {number(float(queue))} B takes {drain_s:,.0f} s at this quota, longer than "
            f"message.timeout.ms={timeout_s * 1000:.0f}: plain librdkafka loses what is still queued then "
            "(measured at 20 kB/s and two minutes: 1,902 of 5,990 messages)"
        )
        most = max(1, int(whole * timeout_s / 2 / 1024))
        remedy = f"use kclient_quota.Producer, which admits only what fits, or queue.buffering.max.kbytes={most}"
        found.append(Finding(CHANGE, "produce", said, remedy))
    batch = _number(conf, "batch.size", _DEFAULT_BATCH)
    samples, window_s = facts.window or (11, 1.0)
    burst = limit * samples * window_s
    if batch > burst:
        said = f"one batch of batch.size={number(float(batch))} is more than {number(burst)} B, a whole window's"
        found.append(Finding(CHANGE, "produce", said, f"batch.size={max(1, int(limit))} or less"))
    linger = _number(conf, "linger.ms", _number(conf, "queue.buffering.max.ms", _SMALL_LINGER_MS))
    if linger <= _SMALL_LINGER_MS:
        said = f"linger.ms={number(linger)}: small batches spend the quota on their headers"
        found.append(Finding(NOTE, "produce", said, "linger.ms=100 costs nobody anything who waits for a quota anyway"))
    return found


def _consuming(facts: Facts, conf: Mapping[str, Any], limit: float) -> list[Finding]:
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
    wanted = _number(conf, "fetch.message.max.bytes", _number(conf, "max.partition.fetch.bytes", 1_048_576))
    if wanted > most:
        said = (
            f"fetches of {number(float(wanted))} B are more than a window gives: plain consumers get half of such "
            "a quota, in lumps 12 to 20 s apart"
        )
        found.append(
            Finding(CHANGE, "consume", said, "use kclient_quota.Consumer, which sizes its fetches to the quota")
        )
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
        remedy = "throttles this long cost plain clients their requests' time-outs: use kclient_quota's"
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
