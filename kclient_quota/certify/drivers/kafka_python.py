"""kafka-python: `python -m kclient_quota.certify.drivers.kafka_python`."""

import time
from functools import partial
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import KafkaError

from kclient_quota.certify.driver import PER_TRANSACTION, id_of
from kclient_quota.certify.drivers.telling import Assignment, cannot, stop_on_sigterm, tell

_CLOSE_S = 5


def _settings(task: Assignment, known: Any) -> dict[str, Any]:
    given = {key.replace(".", "_"): value for key, value in task.config.items()}
    conf = {key: value for key, value in given.items() if key in known.DEFAULT_CONFIG}
    return {"bootstrap_servers": task.bootstrap_servers, "client_id": task.client_id, **conf}


def _failed(number: int, error: BaseException) -> None:
    tell("failed", number, error)


def produce(task: Assignment) -> None:
    """Send everything, wait for the reports, close."""
    producer = KafkaProducer(**_settings(task, KafkaProducer))
    try:
        for number in range(task.messages):
            try:
                future = producer.send(task.topic, task.value(number), task.key(number))
            except KafkaError as error:
                tell("failed", number, error)
                continue
            tell("sent", number)
            future.add_callback(lambda _, number=number: tell("acknowledged", number))
            future.add_errback(partial(_failed, number))
            time.sleep(task.pause_s)
        producer.flush()
    except KeyboardInterrupt:
        pass
    producer.close(timeout=_CLOSE_S)
    tell("closed")


def transact(task: Assignment) -> None:
    """Ten messages a transaction; reports come with the commit."""
    producer = KafkaProducer(**_settings(task, KafkaProducer), transactional_id=task.group)
    producer.init_transactions()
    for first in range(0, task.messages, PER_TRANSACTION):
        numbers = range(first, min(first + PER_TRANSACTION, task.messages))
        producer.begin_transaction()
        for number in numbers:
            producer.send(task.topic, task.value(number))
            tell("sent", number)
        producer.commit_transaction()
        for number in numbers:
            tell("acknowledged", number)
    producer.close(timeout=_CLOSE_S)
    tell("closed")


def consume(task: Assignment) -> None:
    """Read until every id was seen, commit, close."""
    conf = {**_settings(task, KafkaConsumer), "group_id": task.group, "auto_offset_reset": "earliest"}
    consumer = KafkaConsumer(task.topic, **conf, enable_auto_commit=False)
    seen: set[int] = set()
    try:
        while len(seen) < task.messages:
            for messages in consumer.poll(500).values():
                for message in messages:
                    seen.add(number := id_of(message.value))
                    tell("received", number, partition=message.partition)
        consumer.commit()
    except KeyboardInterrupt:
        pass
    consumer.close()
    tell("closed")


def create_topics(task: Assignment) -> None:
    """One topic a request."""
    admin = KafkaAdminClient(**_settings(task, KafkaAdminClient))
    for number in range(task.messages):
        try:
            admin.create_topics([NewTopic(f"{task.topic}-made-{number}", 1, 1)])
        except KafkaError as error:
            tell("failed", number, error)
        else:
            tell("acknowledged", number)
    tell("closed")


if __name__ == "__main__":
    stop_on_sigterm()
    work = Assignment()
    roles = {"produce": produce, "consume": consume, "transact": transact, "create-topics": create_topics}
    if work.role not in roles:
        cannot("kafka-python has no share consumer")
    roles[work.role](work)
