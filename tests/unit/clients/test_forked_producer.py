"""What a child process finds that uses its parent's producer: librdkafka's threads are the parent's."""

import threading

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
    parent._kq_outbox.after_fork()
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


@pytest.mark.parametrize("door", ["metrics", "quota_state"])
def test_who_looks_at_it_does_not_wait_for_a_lock_that_a_thread_of_the_parents_held(door):
    """Such as an exporter of metrics in each of gunicorn's workers: nobody there would ever let go of the lock."""
    child = forked(**{"transactional.id": None})
    locks = [child._kq_hearing._lock, child._kq_sender.lock]
    held, done = threading.Event(), threading.Event()

    def hold():
        with locks[0], locks[1]:
            held.set()
            done.wait(10)

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(10)
    found = []
    looker = threading.Thread(target=lambda: found.append(getattr(child, door)()), daemon=True)
    looker.start()
    looker.join(5)
    done.set()
    holder.join()
    assert found == [{}]
