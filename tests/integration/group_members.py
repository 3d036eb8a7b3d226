"""Members of consumer groups, polled until something holds."""

import time

from confluent_kafka import Producer

DEADLINE_S = 60


def until(condition, *consumers, seconds=DEADLINE_S, on_message=None):
    """Poll the consumers until the condition holds; what they received meanwhile, each told to `on_message`."""
    deadline, received = time.monotonic() + seconds, []
    while not condition(received):
        assert time.monotonic() < deadline, f"not within {seconds} s; {len(received)} messages"
        for each in consumers:
            message = each.poll(0.02)
            if message is not None:
                assert message.error() is None, message.error()
                received.append(message)
                if on_message is not None:
                    on_message(each, message)
    return received


def assigned(each):
    return {(p.topic, p.partition) for p in each.assignment()}


def fill(broker, count, *, start=0):
    """Numbers from `start` on, in turn to the four partitions of `t`."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for number in range(start, start + count):
        producer.produce("t", str(number), partition=number % 4)
    assert producer.flush(60) == 0
