"""Drop-in producers and consumers over confluent_kafka, and the plain ones beside them for comparisons."""

from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import Producer as PlainProducer

__all__ = [
    "KafkaError",
    "KafkaException",
    "PlainConsumer",
    "PlainProducer",
    "TopicPartition",
]
