"""A consumer's configuration: how it is given, and what is said of one that cannot be used."""

from typing import Any

import pytest
from confluent_kafka import KafkaException

from kclient_quota.clients.consumer import Consumer
from kclient_quota.errors import ConfigError


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"consumer_byte_rate": -1}, "consumer_byte_rate"),
        ({"consumer_byte_rate": 0}, "consumer_byte_rate"),
        ({"consumer_byterate": 1}, "consumer_byte_rate"),
        ({"quota.backoff": "sometimes"}, "quota.backoff"),
        ({"interceptor.classes": "no.such.Thing"}, "no.such.Thing"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_refused_by_name(conf: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "quota.limit.source": "auto", **conf})


def test_a_misspelt_key_of_librdkafkas_gets_the_nearest_one_named() -> None:
    with pytest.raises(KafkaException, match=r"auto\.offset\.reset"):
        Consumer({"group.id": "g", "quota.limit.source": "learned", "auto.offset.rest": "earliest"})


def test_configuration_by_keyword_as_confluent_kafka_takes_it() -> None:
    keywords = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "quota.limit.source": "learned"}
    with Consumer(**keywords) as consumer:
        assert consumer.assignment() == []
