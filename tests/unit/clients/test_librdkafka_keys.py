import pytest
from confluent_kafka import KafkaException, Producer

from kclient_quota.clients.librdkafka.keys import KNOWN_KEYS, explained
from kclient_quota.config import QUOTA_KEYS


def refusal(conf: dict[str, object]) -> KafkaException:
    with pytest.raises(KafkaException) as caught:
        Producer(conf)
    return caught.value


def test_the_nearest_known_key_is_named() -> None:
    error = explained(refusal({"bootstrap.server": "b:9092"}))
    assert "\"bootstrap.server\" (did you mean 'bootstrap.servers'?)" in str(error)
    assert error.args[0].code() == refusal({"bootstrap.server": "b:9092"}).args[0].code()


def test_other_refusals_pass_unchanged() -> None:
    for conf in ({"linger.ms": "abc"}, {"qqqqqq": 1}):
        error = refusal(conf)
        assert explained(error) is error


def unknown_to_librdkafka(key: str) -> bool:
    try:
        Producer({key: "x", "log_level": 0})
    except (KafkaException, TypeError, ValueError, AttributeError) as error:
        return f'No such configuration property: "{key}"' in str(error)
    return False


def test_every_key_we_would_name_is_one_that_somebody_knows() -> None:
    serializers = {"key.serializer", "value.serializer", "key.deserializer", "value.deserializer"}
    unknown = {key for key in KNOWN_KEYS if unknown_to_librdkafka(key)}
    assert unknown == serializers | set(QUOTA_KEYS) | {"on_commit"}  # a consumer takes that one
