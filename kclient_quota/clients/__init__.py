"""Drop-in producers and consumers over confluent_kafka, and the plain ones beside them for comparisons."""

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import Producer as PlainProducer
from kclient_telemetry import logger_of

__all__ = [
    "OFFSET_END",
    "KafkaError",
    "KafkaException",
    "PlainConsumer",
    "PlainProducer",
    "TopicPartition",
]

# confluent_kafka logs nothing in Python, and so nothing of ours may come out of its calls
logger_of("kclient_quota")
