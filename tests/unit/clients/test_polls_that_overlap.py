"""A consumer that two threads poll at once: a callback may close it afterwards."""

import threading

import kclient_quota


def test_a_callback_closes_it_after_two_polls_that_overlapped():
    consumer = kclient_quota.Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "quota.backoff": "off"})
    is_in, is_over = threading.Event(), threading.Event()

    def other_poll():
        is_in.set()
        is_over.wait(60)

    other = threading.Thread(target=consumer._kq_within, args=(other_poll,))

    def poll():
        other.start()
        is_in.wait(60)

    consumer._kq_within(poll)
    is_over.set()
    other.join(60)
    consumer._kq_within(consumer._kq_listener.call_back, consumer.close)
    assert not consumer._kq_is_open
