"""What a message of `produce_batch()` may raise: what is its own becomes its `_error`, all else ends the batch."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kclient_quota.clients.producer.caller.batch import produce_one


def refused(error: Exception) -> dict[str, Any]:
    """A message that was produced, which has raised this."""
    message: dict[str, Any] = {"value": b"v"}

    def produce(*_args: Any, **_kwargs: Any) -> None:
        raise error

    assert produce_one(produce, message, -1, None) == 0
    return message


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BufferError("Local: Queue full"), KafkaError._QUEUE_FULL),
        (KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC)), KafkaError._UNKNOWN_TOPIC),
    ],
)
def test_what_librdkafka_says_of_a_message_is_told_by_the_message(error: Exception, code: int) -> None:
    assert refused(error)["_error"].code() == code


@pytest.mark.parametrize("error", [BufferError("mine"), KafkaException("mine"), KafkaException()], ids=repr)
def test_what_the_applications_function_raises_is_raised(error: Exception) -> None:
    with pytest.raises(type(error)) as raised:
        refused(error)
    assert raised.value is error
