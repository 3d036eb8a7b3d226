"""The clients of one case of `benchmarks.simulation`, for real, in a process of their own."""

import json
import logging
import sys
import threading
import time
from dataclasses import asdict, dataclass, fields
from typing import Any

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition


@dataclass(slots=True)
class Done:
    """What the clients of a case did; one number for each client, the plain ones last.

    Attributes:
        delivered: messages that were delivered after the warm-up.
        acknowledged: messages that were delivered at any time.
        expired: messages that were given up as too old.
        timeouts: how often requests timed out, so that a connection was given up; only of plain producers.
    """

    delivered: list[int]
    acknowledged: list[int]
    expired: list[int]
    timeouts: list[int]


class _Timeouts(logging.Handler):
    """Counts what librdkafka says when requests have timed out."""

    def __init__(self, done: Done, number: int) -> None:
        super().__init__(logging.WARNING)
        self._done = done
        self._number = number

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        if "REQTMOUT" in said and "partially-sent" in said:
            self._done.timeouts[self._number] += 1


def play(spec: dict[str, Any]) -> Done:
    """All clients of a case, a thread each."""
    together = spec["clients"] + spec["plain"]
    done = Done(*([0] * together for _ in fields(Done)))
    play_one = _consume if spec["consume"] else _produce
    threads = [threading.Thread(target=play_one, args=(spec, number, done), daemon=True) for number in range(together)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return done


def _conf(spec: dict[str, Any], number: int) -> tuple[dict[str, Any], bool]:
    """A client's configuration, and whether it is one of kclient-quota's."""
    conf = {"bootstrap.servers": spec["bootstrap"], "client.id": spec["case"]}
    ours = number < spec["clients"]
    if ours and number >= spec["knowing"]:
        conf["quota.limit.source"] = "learned"
    return conf, ours


def _await_turn(spec: dict[str, Any], number: int) -> None:
    time.sleep(max(0.0, spec["begin_s"] - time.time()) + number * 1.0 / (spec["clients"] + spec["plain"]))


def _produce(spec: dict[str, Any], number: int, done: Done) -> None:
    """Produce until the end, at most at the rate that is asked for; count what is delivered."""
    from kclient_quota import Producer  # noqa: PLC0415  the simulation needs no client

    conf, ours = _conf(spec, number)
    producer: Any = Producer(conf) if ours else _plain_producer(conf, done, number, spec["socket_timeout_ms"])
    warm_s, end_s = spec["begin_s"] + spec["warm_up_s"], spec["begin_s"] + spec["seconds"]

    def on_delivery(error: Any, _: object) -> None:
        if error is None:
            done.acknowledged[number] += 1
            if warm_s <= time.time() < end_s:
                done.delivered[number] += 1
        elif error.name() == "_MSG_TIMED_OUT":
            done.expired[number] += 1

    value = b"v" * spec["message_bytes"]
    partitions = range(spec["partitions"]) if spec["keyed"] else [-1]
    _await_turn(spec, number)
    begin_s, sent, per_message_s = time.time(), 0, spec["per_message_s"]
    now_s = time.time()
    while now_s < end_s:
        early_s = begin_s + sent * per_message_s - now_s
        producer.poll(max(0.0, early_s))
        now_s = time.time()
        if early_s > 0.0:
            continue
        try:
            producer.produce(spec["case"], value, partition=partitions[sent % len(partitions)], on_delivery=on_delivery)
            sent += 1
        except BufferError:
            producer.poll(0.1)
    producer.purge()
    producer.close()


def _plain_producer(conf: dict[str, Any], done: Done, number: int, timeout_ms: int) -> ConfluentProducer:
    logger = logging.getLogger(f"{conf['client.id']}-{number}")
    logger.addHandler(_Timeouts(done, number))
    logger.propagate = False
    return ConfluentProducer(conf | {"socket.timeout.ms": timeout_ms}, logger=logger)


def _consume(spec: dict[str, Any], number: int, done: Done) -> None:
    """Read as fast as may be until the end, counted when it is received."""
    from kclient_quota import Consumer  # noqa: PLC0415  the simulation needs no client

    conf, ours = _conf(spec, number)
    conf |= {"group.id": f"{spec['case']}-{number}", "enable.auto.commit": False}
    _await_turn(spec, number)
    consumer: Any = Consumer(conf) if ours else ConfluentConsumer(conf)
    consumer.assign([TopicPartition(spec["case"], partition, 0) for partition in range(spec["partitions"])])
    begin_s, end_s = spec["begin_s"] + spec["warm_up_s"], spec["begin_s"] + spec["seconds"]
    now_s = time.time()
    while now_s < end_s:
        message = consumer.poll(0.1)
        now_s = time.time()
        if message is not None and message.error() is None and begin_s <= now_s < end_s:
            done.delivered[number] += 1
    consumer.close()


if __name__ == "__main__":
    print(json.dumps(asdict(play(json.loads(sys.argv[1])))))
