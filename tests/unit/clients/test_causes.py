"""What a `KafkaException` holds: librdkafka's error, or whatever an application has made one of."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from kclient_quota.clients.calls import cause_of, is_fatal
from kclient_quota.clients.producer.sender.answers import code_of


@pytest.mark.parametrize("error", [KafkaException(), KafkaException("mine"), ValueError(1), ValueError()], ids=repr)
def test_what_is_not_of_librdkafka_is_of_no_cause_and_not_fatal(error: Exception) -> None:
    assert cause_of(error) is None
    assert not is_fatal(error)
    assert code_of(error) == KafkaError._FAIL


@pytest.mark.parametrize("fatal", [True, False])
def test_librdkafkas_says_whether_it_is_fatal(fatal: bool) -> None:
    cause = KafkaError(KafkaError._FENCED, fatal=fatal)
    assert cause_of(KafkaException(cause)) is cause
    assert is_fatal(KafkaException(cause)) is fatal
    assert code_of(KafkaException(cause)) == KafkaError._FENCED
