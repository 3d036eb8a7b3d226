"""What `produce_batch()` is given, and what becomes of each message of it, as confluent_kafka has it."""

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from kclient_quota.clients.calls import cause_of, named
from kclient_quota.clients.producer.caller.taking import are_headers
from kclient_quota.clients.producer.outbox import Callback
from kclient_quota.errors import QuotaThrottledError, is_full


def is_batch(messages: object) -> bool:
    """Whether confluent_kafka would take these for a batch; otherwise it says what is wrong with them."""
    return isinstance(messages, list) and all(
        isinstance(message, dict)
        and isinstance(message.get("value"), (str, bytes, type(None)))
        and isinstance(message.get("key"), (str, bytes, type(None)))
        and isinstance(message.get("partition"), (int, type(None)))
        and message.get("timestamp") is None
        and (message.get("headers") is None or are_headers(named(message["headers"])))
        for message in messages
    )


def produce_each(
    produce: Callable[..., None], messages: list[dict[str, Any]], partition: int, callback: Callback | None
) -> int:
    """All of a batch, until there is no room for one; how many were taken.

    Raises:
        QuotaThrottledError: none was.
    """
    sent = 0
    for number, message in enumerate(messages):
        try:
            sent += produce_one(produce, message, partition, callback)
        except QuotaThrottledError as error:
            if not sent:
                raise
            for rest in messages[number:]:
                rest["_error"] = queue_full(error)
            break
    return sent


def produce_one(
    produce: Callable[..., None], message: dict[str, Any], partition: int, callback: Callback | None
) -> int:
    """One message of a batch; whether it was taken."""
    given = message.get("partition")
    where = partition if given is None else given
    callback = callback if message.get("callback") is None else message["callback"]
    try:
        produce(message.get("value"), message.get("key"), where, callback, headers=message.get("headers"))
    except QuotaThrottledError:
        raise
    except BufferError as error:
        if not is_full(error):  # the application's own, of a function that says which lane or tenant a message has
            raise
        message["_error"] = queue_full(error)
        return 0
    except KafkaException as error:
        told = cause_of(error)
        if told is None or told.txn_requires_abort():
            raise
        code = told.code()
        message["_error"] = KafkaError(code, f"Message failed: {KafkaError(code).str()}")
        return 0
    return 1


def queue_full(error: Exception) -> KafkaError:
    """What a batch's message is told that there is no room for."""
    return KafkaError(KafkaError._QUEUE_FULL, str(error))  # noqa: SLF001 - confluent_kafka's name for the code
