"""What a child process finds that uses its parent's producer: librdkafka's threads are the parent's."""

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kclient_quota import Producer

CONF = {
    "bootstrap.servers": "127.0.0.1:1",
    "log_level": 0,
    "quota.backoff": "off",
    "enable.metrics.push": False,
    "transactional.id": "x",
}
DOORS = {
    "init_transactions": lambda producer: producer.init_transactions(0.1),
    "begin_transaction": lambda producer: producer.begin_transaction(),
    "send_offsets": lambda producer: producer.send_offsets_to_transaction([TopicPartition("t", 0, 1)], None, 0.1),
    "commit_transaction": lambda producer: producer.commit_transaction(0.1),
    "abort_transaction": lambda producer: producer.abort_transaction(0.1),
}


def forked(**changes):
    conf = {key: value for key, value in {**CONF, **changes}.items() if value is not None}
    parent = Producer(conf)
    if not conf.get("transactional.id"):
        parent.produce("t", b"the parent's")
    parent._outbox.after_fork()
    return parent


def test_what_a_child_has_closed_waits_for_nothing_of_its_parents():
    child = forked(**{"transactional.id": None})
    child.produce("t", b"the child's")
    assert child.close() is False
    assert child.flush(0.1) == 1
    assert child.poll(0) == 0
    assert len(child) == 1
    child.purge()
    assert child.flush() == 0
    with pytest.raises(TypeError):
        child.flush("soon")


@pytest.mark.parametrize("door", DOORS)
def test_transactions_are_the_parents(door):
    child = forked()
    with pytest.raises(KafkaException, match="before the process was forked") as raised:
        DOORS[door](child)
    assert raised.value.args[0].code() == KafkaError._STATE
