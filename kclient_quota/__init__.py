"""Quota-aware Kafka clients for Python.

Names are loaded when they are first used: importing the package alone loads neither librdkafka nor anything heavy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kclient_quota.clients.consumer import Consumer
    from kclient_quota.clients.interceptor import (
        ConsumerInterceptor,
        ProducerInterceptor,
        ProducerRecord,
        RecordMetadata,
    )
    from kclient_quota.clients.producer import Producer
    from kclient_quota.errors import (
        ClusterError,
        ConfigError,
        KclientQuotaError,
        QuotaThrottledError,
        WireError,
    )
    from kclient_quota.metrics import MetricName

_HOMES = {
    "ClusterError": "errors",
    "ConfigError": "errors",
    "Consumer": "clients.consumer",
    "ConsumerInterceptor": "clients.interceptor",
    "KclientQuotaError": "errors",
    "MetricName": "metrics",
    "Producer": "clients.producer",
    "ProducerInterceptor": "clients.interceptor",
    "ProducerRecord": "clients.interceptor",
    "QuotaThrottledError": "errors",
    "RecordMetadata": "clients.interceptor",
    "WireError": "errors",
}

_REFUSED = {"ShareConsumer", "DeserializingShareConsumer"}

__all__ = [
    "ClusterError",
    "ConfigError",
    "Consumer",
    "ConsumerInterceptor",
    "KclientQuotaError",
    "MetricName",
    "Producer",
    "ProducerInterceptor",
    "ProducerRecord",
    "QuotaThrottledError",
    "RecordMetadata",
    "WireError",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if name in _REFUSED:
        # ImportError, because `from kclient_quota import ...` would drop the text of an AttributeError.
        raise ImportError(f"share groups (KIP-932) are not paced: use confluent_kafka.{name} as it is", name=__name__)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
