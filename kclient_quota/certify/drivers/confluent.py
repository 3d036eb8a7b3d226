"""confluent_kafka, plain or ours: `python -m kclient_quota.certify.drivers.confluent plain|ours`."""

import sys
import time
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import kclient_quota
from kclient_quota.certify.driver import PER_TRANSACTION, id_of
from kclient_quota.certify.drivers.telling import Assignment, stop_on_sigterm, tell

_PRODUCER_ONLY = ("delivery.timeout.ms", "compression.type", "acks", "transaction.timeout.ms")
_CREATE_S = 60


def _settings(task: Assignment) -> dict[str, Any]:
    conf = {"bootstrap.servers": task.bootstrap_servers, "client.id": task.client_id, **task.config}
    if "request.timeout.ms" in conf:  # what Kafka calls so; librdkafka's own key of that name is the broker's time
        conf["socket.timeout.ms"] = conf.pop("request.timeout.ms")
    if conf.get("group.protocol") == "consumer":  # its timeouts are the broker's
        for key in ("session.timeout.ms", "heartbeat.interval.ms"):
            conf.pop(key, None)
    return conf


def _report(number: int, error: KafkaError | None, _message: object) -> None:
    tell("acknowledged", number) if error is None else tell("failed", number, error)


def produce(module: Any, task: Assignment) -> None:
    """Send everything, wait for the reports, close."""
    producer = module.Producer(_settings(task))
    try:
        for number in range(task.messages):
            _send(producer, task, number, partial(_report, number))
            _pause(producer, task.pause_s)
        while producer.flush(1):
            pass
    except KeyboardInterrupt:
        pass
    # plain confluent_kafka's close() drops what is queued, so its users flush first
    if module is confluent_kafka:
        producer.flush(5)
        producer.purge()
        producer.flush(1)
    producer.close()
    tell("closed")


def _pause(producer: Any, pause_s: float) -> None:
    """Serve reports for so long: one `poll` returns with the first of them."""
    end = time.monotonic() + pause_s
    producer.poll(0)
    while (left_s := end - time.monotonic()) > 0:
        producer.poll(left_s)


def _send(producer: Any, task: Assignment, number: int, on_delivery: Any) -> None:
    while True:
        try:
            producer.produce(task.topic, task.value(number), task.key(number), on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.05)
        else:
            tell("sent", number)
            return


def transact(module: Any, task: Assignment) -> None:
    """Ten messages a transaction; reports come with the commit."""
    producer = module.Producer({**_settings(task), "transactional.id": task.group})
    producer.init_transactions(30)
    for first in range(0, task.messages, PER_TRANSACTION):
        numbers = range(first, min(first + PER_TRANSACTION, task.messages))
        producer.begin_transaction()
        for number in numbers:
            _send(producer, task, number, None)
        _until_done(producer.commit_transaction)
        for number in numbers:
            tell("acknowledged", number)
    producer.close()
    tell("closed")


def _until_done(call: Any) -> None:
    while True:
        try:
            call(30)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def consume(module: Any, task: Assignment) -> None:
    """Read until every id was seen, commit, close."""
    told: set[str] = set()
    settings = {key: value for key, value in _settings(task).items() if key not in _PRODUCER_ONLY}
    more = {"group.id": task.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = module.Consumer({**settings, **more})
    consumer.subscribe([task.topic])
    seen: set[int] = set()
    try:
        while len(seen) < task.messages:
            message = consumer.poll(0.5)
            if message is None:
                for state in getattr(consumer, "quota_state", dict)().values():
                    if state.stall and state.stall not in told:
                        told.add(state.stall)
                        tell("said", error=state.stall)
                continue
            if message.error() is not None:
                tell("said", error=message.error())
                continue
            seen.add(number := id_of(message.value()))
            tell("received", number, partition=message.partition())
        consumer.commit(asynchronous=False)
    except KeyboardInterrupt:
        pass
    consumer.close()
    tell("closed")


def share_consume(module: Any, task: Assignment) -> None:
    """Read as a member of a share group until every id was seen; what was received is accepted with the next poll."""
    settings = {key: value for key, value in _settings(task).items() if key not in _PRODUCER_ONLY}
    consumer = module.ShareConsumer({**settings, "group.id": task.group})
    consumer.subscribe([task.topic])
    seen: set[int] = set()
    try:
        while len(seen) < task.messages:
            for message in consumer.poll(0.5):
                if message.error() is not None:
                    tell("said", error=message.error())
                    continue
                seen.add(number := id_of(message.value()))
                tell("received", number, partition=message.partition(), delivery=message.delivery_count())
        consumer.commit_sync()
    except KeyboardInterrupt:
        pass
    consumer.close()
    tell("closed")


def create_topics(task: Assignment) -> None:
    """One topic a request; ours has no admin client of its own for that."""
    admin = AdminClient(_settings(task))
    for number in range(task.messages):
        deadline = time.monotonic() + _CREATE_S
        while True:
            name = f"{task.topic}-made-{number}"
            (future,) = admin.create_topics([NewTopic(name, 1, 1)], request_timeout=_CREATE_S).values()
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.THROTTLING_QUOTA_EXCEEDED or time.monotonic() > deadline:
                    tell("failed", number, error)
                    break
                time.sleep(0.5)
            else:
                tell("acknowledged", number)
                break
    tell("closed")


def main() -> None:
    """Do what the environment says."""
    module = kclient_quota if sys.argv[1:] == ["ours"] else confluent_kafka
    stop_on_sigterm()
    task = Assignment()
    if task.role == "create-topics":
        create_topics(task)
    else:
        roles = {"produce": produce, "consume": consume, "share-consume": share_consume, "transact": transact}
        roles[task.role](module, task)


if __name__ == "__main__":
    main()
