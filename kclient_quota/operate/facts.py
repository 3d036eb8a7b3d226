"""What a cluster tells about itself and about a client, for `doctor`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kclient_quota import __version__
from kclient_quota.cluster.configs import ResourceType, describe_configs, window_of
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.operate.clocks import Skew, skew
from kclient_quota.operate.stored import Stored, read_some
from kclient_quota.wire.error_codes import error_name
from kclient_quota.wire.messages import ApiVersionsRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient_quota.admin.client_metrics import ClientMetricsSubscription
    from kclient_quota.admin.effective import EffectiveQuota
    from kclient_quota.admin.quotas import QuotaAdmin
    from kclient_quota.quota.entity import ClientQuotaEntity

_METADATA_VERSION: Final = "metadata.version"


@dataclass(slots=True)
class Facts:
    """What a cluster told about itself and this client; None where it did not.

    Attributes:
        cluster_id: the cluster's.
        brokers: how many there are.
        apis: numbers of the APIs that brokers speak.
        metadata_version: the finalized level of that feature, by which Kafka's release can be told.
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
    metadata_version: int | None = None
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
    asked = ApiVersionsRequest(client_software_name="kclient-quota", client_software_version=__version__)
    answer = admin.client.ask(asked, timeout_ms=timeout_ms)
    facts.apis = frozenset(api.api_key for api in answer.api_keys)
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features or ()}
    facts.metadata_version = levels.get(_METADATA_VERSION)
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
