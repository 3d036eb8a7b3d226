"""Real Apache Kafka for tests and measurements: fetched as Maven artefacts, run in one JVM, gone when its parent is.

`ApacheKafka` is the counterpart of the embedded broker: the same attributes, the reference behaviour. It needs a JDK
(17 or newer) and Maven on the path the first time; afterwards only Java, and no network.

Whether it is there is asked by many who begin none: the cluster is loaded when it is first named.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kclient_quota.testing.apache.artefacts import (
    KAFKA_VERSION,
    ApacheKafkaUnavailable,
    apache_kafka_unavailable_reason,
)

if TYPE_CHECKING:
    from kclient_quota.testing.apache.cluster import ApacheKafka, ByteSample

__all__ = [
    "KAFKA_VERSION",
    "ApacheKafka",
    "ApacheKafkaUnavailable",
    "ByteSample",
    "apache_kafka_unavailable_reason",
]


def __getattr__(name: str) -> Any:
    if name not in {"ApacheKafka", "ByteSample"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.cluster"), name)
    globals()[name] = value
    return value
