"""Drop-in producers and consumers over confluent_kafka, and the plain ones beside them for comparisons."""

import logging
import traceback
from contextlib import suppress

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


def _bear_handlers_that_raise(logger: logging.Logger) -> None:
    """Have a handler or a filter that fails cost the line that it was given, and nothing else.

    confluent_kafka logs nothing in Python: what an application's handler raises would come out of `poll()`, or end the
    thread that follows the quota.

    Args:
        logger: of all clients.
    """

    def handle(record: logging.LogRecord) -> None:
        try:
            type(logger).handle(logger, record)  # looked for each time: others put their own there
        except Exception:  # noqa: BLE001 - whatever it is
            if logging.raiseExceptions:
                with suppress(Exception):  # the standard error is closed, too
                    traceback.print_exc()

    logger.handle = handle  # type: ignore[method-assign]


_bear_handlers_that_raise(logging.getLogger("kclient_quota"))
