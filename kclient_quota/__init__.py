"""Quota-aware Kafka clients for Python.

    from kclient_quota import Producer  # in place of: from confluent_kafka import Producer

Names are loaded when they are first used: importing the package alone loads neither librdkafka nor anything heavy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kclient_telemetry.client.otel import KafkaMetricReader as KafkaMetricReader
    from kclient_telemetry.errors import MissingExtraError
    from kclient_telemetry.metric import MetricKind

    from kclient_quota.admin.aio import AIOQuotaAdmin
    from kclient_quota.admin.applying import ConflictError
    from kclient_quota.admin.model import (
        ClientQuotaAlteration,
        ClientQuotaAlterationOp,
        ClientQuotaFilter,
        ClientQuotaFilterComponent,
        ClientQuotaMatchType,
    )
    from kclient_quota.admin.quotas import QuotaAdmin
    from kclient_quota.admin.results import PartialAlterationError
    from kclient_quota.clients.aio import (
        AIOConsumer,
        AIOProducer,
        AsyncDeserializingConsumer,
        AsyncSerializingProducer,
    )
    from kclient_quota.clients.consumer import Consumer
    from kclient_quota.clients.consumer.share_consumer import DeserializingShareConsumer, ShareConsumer
    from kclient_quota.clients.interceptor import (
        ConsumerInterceptor,
        ProducerInterceptor,
        ProducerRecord,
        RecordMetadata,
    )
    from kclient_quota.clients.producer import Producer
    from kclient_quota.clients.quota_state import BrokerQuotaState
    from kclient_quota.clients.serializing import DeserializingConsumer, SerializingProducer
    from kclient_quota.errors import ClusterError, ConfigError, KclientQuotaError, QuotaThrottledError, WireError
    from kclient_quota.metrics import MetricName
    from kclient_quota.otel.instrument import instrument
    from kclient_quota.quota.callback import ClientQuotaCallback, ClientQuotaType
    from kclient_quota.quota.entity import DEFAULT, ClientQuotaEntity

    __version__: str

# Where each name lives: a module of this package, or of kclient_telemetry.
_HOMES = {
    "AIOConsumer": "clients.aio",
    "AIOProducer": "clients.aio",
    "AIOQuotaAdmin": "admin.aio",
    "AsyncDeserializingConsumer": "clients.aio",
    "AsyncSerializingProducer": "clients.aio",
    "BrokerQuotaState": "clients.quota_state",
    "ClientQuotaAlteration": "admin.model",
    "ClientQuotaAlterationOp": "admin.model",
    "ClientQuotaCallback": "quota.callback",
    "ClientQuotaEntity": "quota.entity",
    "ClientQuotaFilter": "admin.model",
    "ClientQuotaFilterComponent": "admin.model",
    "ClientQuotaMatchType": "admin.model",
    "ClientQuotaType": "quota.callback",
    "ClusterError": "errors",
    "ConfigError": "errors",
    "ConflictError": "admin.applying",
    "Consumer": "clients.consumer",
    "ConsumerInterceptor": "clients.interceptor",
    "DEFAULT": "quota.entity",
    "DeserializingConsumer": "clients.serializing",
    "DeserializingShareConsumer": "clients.consumer.share_consumer",
    "KafkaMetricReader": "kclient_telemetry.client.otel",
    "KclientQuotaError": "errors",
    "MetricKind": "kclient_telemetry.metric",
    "MetricName": "metrics",
    "MissingExtraError": "kclient_telemetry.errors",
    "PartialAlterationError": "admin.results",
    "Producer": "clients.producer",
    "ProducerInterceptor": "clients.interceptor",
    "ProducerRecord": "clients.interceptor",
    "QuotaAdmin": "admin.quotas",
    "QuotaThrottledError": "errors",
    "RecordMetadata": "clients.interceptor",
    "SerializingProducer": "clients.serializing",
    "ShareConsumer": "clients.consumer.share_consumer",
    "WireError": "errors",
    "instrument": "otel.instrument",
}

# KafkaMetricReader, which needs the extra `otel`, is not among them: what looks at all of them does without.
__all__ = [
    "DEFAULT",
    "AIOConsumer",
    "AIOProducer",
    "AIOQuotaAdmin",
    "AsyncDeserializingConsumer",
    "AsyncSerializingProducer",
    "BrokerQuotaState",
    "ClientQuotaAlteration",
    "ClientQuotaAlterationOp",
    "ClientQuotaCallback",
    "ClientQuotaEntity",
    "ClientQuotaFilter",
    "ClientQuotaFilterComponent",
    "ClientQuotaMatchType",
    "ClientQuotaType",
    "ClusterError",
    "ConfigError",
    "ConflictError",
    "Consumer",
    "ConsumerInterceptor",
    "DeserializingConsumer",
    "DeserializingShareConsumer",
    "KclientQuotaError",
    "MetricKind",
    "MetricName",
    "MissingExtraError",
    "PartialAlterationError",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "QuotaAdmin",
    "QuotaThrottledError",
    "RecordMetadata",
    "SerializingProducer",
    "ShareConsumer",
    "WireError",
    "__version__",
    "instrument",
]


def _found_version() -> str:
    try:
        from kclient_quota._version import version as __version__  # noqa: PLC0415 - when asked for, as all is
    except ImportError:  # used from the sources, which no build has written it into
        __version__ = "0.2.0"
    return str(__version__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        globals()[name] = version = _found_version()
        return version
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home if home.startswith("kclient_telemetry") else f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
