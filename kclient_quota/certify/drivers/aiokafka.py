"""aiokafka: `python -m kclient_quota.certify.drivers.aiokafka`."""

import asyncio
import inspect
import signal
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from kclient_quota.certify.driver import PER_TRANSACTION, id_of
from kclient_quota.certify.drivers.telling import Assignment, cannot, tell


def _settings(task: Assignment, known: Any) -> dict[str, Any]:
    names = inspect.signature(known.__init__).parameters
    given = {key.replace(".", "_"): value for key, value in task.config.items()}
    conf = {key: value for key, value in given.items() if key in names}
    return {"bootstrap_servers": task.bootstrap_servers, "client_id": task.client_id, **conf}


def _report(number: int, future: "asyncio.Future[Any]") -> None:
    error = None if future.cancelled() else future.exception()
    if future.cancelled() or error is not None:
        tell("failed", number, error or "cancelled")
    else:
        tell("acknowledged", number)


async def produce(task: Assignment) -> None:
    """Send everything, wait for the reports."""
    producer = AIOKafkaProducer(**_settings(task, AIOKafkaProducer))
    await producer.start()
    try:
        for number in range(task.messages):
            try:
                future = await producer.send(task.topic, task.value(number), task.key(number))
            except KafkaError as error:
                tell("failed", number, error)
                continue
            tell("sent", number)
            future.add_done_callback(lambda done, number=number: _report(number, done))
            await asyncio.sleep(task.pause_s)
        await producer.flush()
    finally:
        await producer.stop()


async def transact(task: Assignment) -> None:
    """Ten messages a transaction; reports come with the commit."""
    producer = AIOKafkaProducer(**_settings(task, AIOKafkaProducer), transactional_id=task.group)
    await producer.start()
    try:
        for first in range(0, task.messages, PER_TRANSACTION):
            numbers = range(first, min(first + PER_TRANSACTION, task.messages))
            async with producer.transaction():
                for number in numbers:
                    await producer.send(task.topic, task.value(number))
                    tell("sent", number)
            for number in numbers:
                tell("acknowledged", number)
    finally:
        await producer.stop()


async def consume(task: Assignment) -> None:
    """Read until every id was seen, commit."""
    conf = {**_settings(task, AIOKafkaConsumer), "group_id": task.group, "auto_offset_reset": "earliest"}
    consumer = AIOKafkaConsumer(task.topic, **conf, enable_auto_commit=False)
    await consumer.start()
    seen: set[int] = set()
    try:
        while len(seen) < task.messages:
            for messages in (await consumer.getmany(timeout_ms=500)).values():
                for message in messages:
                    seen.add(number := id_of(message.value))
                    tell("received", number, partition=message.partition)
        await consumer.commit()
    finally:
        await consumer.stop()


async def create_topics(task: Assignment) -> None:
    """One topic a request."""
    admin = AIOKafkaAdminClient(**_settings(task, AIOKafkaAdminClient))
    await admin.start()
    try:
        for number in range(task.messages):
            answer = await admin.create_topics([NewTopic(f"{task.topic}-made-{number}", 1, 1)])
            ((_, code, *_),) = answer.topic_errors
            tell("failed", number, f"error {code}") if code else tell("acknowledged", number)
    finally:
        await admin.close()


async def main() -> None:
    """Do what the environment says; a signal cancels it, and the client is closed."""
    task = Assignment()
    roles = {"produce": produce, "consume": consume, "transact": transact, "create-topics": create_topics}
    if task.role not in roles:
        cannot("aiokafka has no share consumer")
    working = asyncio.ensure_future(roles[task.role](task))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, working.cancel)
    await asyncio.wait([working])
    if not working.cancelled() and working.exception() is not None:
        tell("said", error=working.exception())
        raise SystemExit(1)
    tell("closed")


if __name__ == "__main__":
    asyncio.run(main())
