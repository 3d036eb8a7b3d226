"""Real Apache Kafka for tests and measurements: fetched as Maven artefacts, run in one JVM, gone when its parent is.

`ApacheKafka` is the counterpart of the embedded broker: the same attributes, the reference behaviour. It needs a JDK
(17 or newer) and Maven on the path the first time; afterwards only Java, and no network.
"""

from kclient_quota.testing.apache.artefacts import (
    KAFKA_VERSION,
    ApacheKafkaUnavailable,
    apache_kafka_unavailable_reason,
)
from kclient_quota.testing.apache.cluster import ApacheKafka, ByteSample

__all__ = [
    "KAFKA_VERSION",
    "ApacheKafka",
    "ApacheKafkaUnavailable",
    "ByteSample",
    "apache_kafka_unavailable_reason",
]
