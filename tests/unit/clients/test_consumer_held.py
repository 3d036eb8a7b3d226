"""The buffer of messages that the application has not received."""

from confluent_kafka import KafkaError, Message, TopicPartition

from kclient_quota.clients.consumer.receiving.held import MOST_MESSAGES, HeldMessages, ReceivedOffsets


def _message(partition: int, offset: int, size: int = 10) -> Message:
    return Message(topic="t", partition=partition, offset=offset, value=b"x" * size, leader_epoch=3)


def _at_end(partition: int) -> Message:
    return Message(topic="t", partition=partition, offset=9, error=KafkaError(KafkaError._PARTITION_EOF))


def test_messages_come_out_in_order_and_the_first_offset_of_each_partition_is_known() -> None:
    held = HeldMessages()
    held.add([_message(0, 5), _message(1, 7), _message(0, 6)])
    assert len(held) == 3
    assert held.first_offsets() == {("t", 0): (5, 3), ("t", 1): (7, 3)}
    assert [message.offset() for message in held.take(2)] == [5, 7]
    assert held.first_offsets() == {("t", 0): (6, 3)}
    assert [message.offset() for message in held.take(10)] == [6]
    assert not held


def test_paused_partitions_wait_and_keep_their_place() -> None:
    held = HeldMessages()
    held.add([_message(0, 1), _message(1, 1), _message(0, 2), _message(1, 2)])
    held.set_aside({("t", 0)})
    assert [(m.partition(), m.offset()) for m in held.take(10)] == [(1, 1), (1, 2)]
    held.bring_back({("t", 0)})
    assert [(m.partition(), m.offset()) for m in held.take(10)] == [(0, 1), (0, 2)]


def test_what_is_set_aside_is_held_all_the_same() -> None:
    held = HeldMessages()
    held.add([_message(0, 1), _message(1, 1), _message(0, 2), _message(2, 5)])
    assert [message.offset() for message in held.take(1)] == [1]
    held.set_aside({("t", 0), ("t", 2), ("u", 1)})
    assert (len(held), held.there, held.handed()[0].offset()) == (3, 1, 1)
    assert held.first_offsets() == {("t", 0): (2, 3), ("t", 1): (1, 3), ("t", 2): (5, 3)}
    assert held.next_offsets() == {("t", 0): 3, ("t", 1): 2, ("t", 2): 6}
    held.forget_handed()
    held.set_aside({("t", 1)})
    assert (len(held), held.there, held.take(9)) == (3, 0, [])
    held.bring_back({("t", 0)})
    assert [message.partition() for message in held.take(9)] == [0]
    assert held.drop([TopicPartition("t", 2)]) == len(_message(2, 5))
    assert held.first_offsets() == {("t", 1): (1, 3)}
    assert held.drop() == len(_message(1, 1))
    assert not held


def test_what_is_wrong_with_a_partition_is_told_though_it_has_gone_but_not_where_it_ended() -> None:
    wrong = Message(topic="t", partition=0, error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    for named in ([TopicPartition("t", 0)], None):
        held = HeldMessages()
        held.add([_message(0, 1), wrong, _at_end(0)])
        held.drop(named)
        assert held.take(9) == [wrong]
        held.gone.add(("t", 0))
        assert held.add_unless_gone([wrong]) == set()
        assert held.add_unless_gone([_at_end(0), wrong, _message(0, 2)]) == {("t", 0)}
        assert held.take(9) == [wrong, wrong]


def test_it_is_full_of_what_is_set_aside_too() -> None:
    held = HeldMessages()
    held.add([_message(0, 1, size=8_000_000)])
    held.set_aside({("t", 0)})
    assert held.full


def test_of_very_many_only_what_is_asked_for_is_looked_at() -> None:
    held = HeldMessages()
    held.add(_message(0, offset) for offset in range(10 * MOST_MESSAGES))
    everything = held.messages
    handed: list[int | None] = []
    for _ in range(100):
        held.take(1)
        handed += [message.offset() for message in held.handed()]
        held.forget_handed()
        held.add([_message(0, 0)])
    assert handed == list(range(100))
    assert held.messages is everything, "a copy would be made for every call"
    held.take(8 * MOST_MESSAGES)
    held.forget_handed()
    assert len(held.messages) == len(held), "what has been handed over is let go"


def test_events_have_no_offset_to_hold_back_and_are_not_paused() -> None:
    held = HeldMessages()
    held.add([_at_end(0), _message(0, 9)])
    assert held.first_offsets() == {("t", 0): (9, 3)}
    held.set_aside({("t", 0)})
    assert held.take(10)[0].error() is not None
    assert len(held) == 1


def test_what_is_dropped_is_gone() -> None:
    held = HeldMessages()
    held.add([_message(0, 1), _message(1, 1)])
    assert held.drop([TopicPartition("t", 0), TopicPartition("u", 1)]) == len(_message(0, 1))
    assert [message.partition() for message in held.take(10)] == [1]
    held.add([_message(0, 1)])
    assert held.drop() == len(_message(0, 1))
    assert held.take(10) == []


def test_it_is_full_by_count_and_by_bytes() -> None:
    held = HeldMessages()
    held.add(_message(0, offset) for offset in range(MOST_MESSAGES - 1))
    assert not held.full
    held.add([_message(0, MOST_MESSAGES)])
    assert held.full
    held.take(1)
    assert not held.full
    held.drop()
    held.add([_message(0, 1, size=8_000_000)])
    assert held.full


def test_what_was_received_is_known_by_partition_whether_noted_or_asked_for() -> None:
    received = ReceivedOffsets()
    received.begin([TopicPartition("t", 2, 40), TopicPartition("t", 3)])
    received.note([_message(0, 5), _message(1, 7), _message(0, 6), _at_end(0)])
    assert received.offsets() == {("t", 0): 7, ("t", 1): 8, ("t", 2): 40}
    received.note([_message(0, 7), _message(1, 8)])
    # A partition that librdkafka has been made to seek in has no position there.
    received.replace([TopicPartition("t", 0, 8), TopicPartition("t", 1, -1001)])
    assert received.offsets() == {("t", 0): 8, ("t", 1): 9, ("t", 2): 40}
    received.begin([TopicPartition("t", 0)])
    assert received.offsets() == {("t", 1): 9, ("t", 2): 40}


def test_librdkafka_is_asked_once_enough_has_been_noted_by_count_or_bytes() -> None:
    received = ReceivedOffsets()
    received.note([_message(0, offset) for offset in range(999)])
    assert not received.is_due
    received.note([_message(0, 999)])
    assert received.is_due
    received.replace([TopicPartition("t", 0, 1_000)])
    assert not received.is_due
    received.note([_message(0, 1_000, 8_000_000)])
    assert received.is_due


def test_what_came_of_a_partition_that_went_away_meanwhile_is_not_held() -> None:
    held = HeldMessages()
    held.gone.add(("t", 0))
    pulled = [_message(0, 5), _message(1, 7), _at_end(0), _at_end(1), _message(0, 6)]
    assert held.add_unless_gone(pulled) == {("t", 0)}
    assert [(message.partition(), message.offset()) for message in held.take(9)] == [(1, 7), (1, 9)]
    held.gone.clear()
    assert held.add_unless_gone(pulled[:2]) == set()
    assert len(held) == 2


def test_an_end_that_was_told_is_not_told_again_by_another_client_unless_it_is_reached_again() -> None:
    held, received = HeldMessages(), ReceivedOffsets()
    received.note([_message(0, 8), _at_end(0), _at_end(1), _at_end(3)])
    held.add([_message(2, 8), _at_end(2)])
    assert held.ends() == {("t", 2): (KafkaError._PARTITION_EOF, 9)}
    received.ends_come_again(held.ends())
    received.begin([TopicPartition("t", 1, 4)])
    later = [_at_end(0), _at_end(1), _at_end(2), _message(3, 9), _at_end(3), _message(0, 9), _at_end(0)]
    given = received.without_ends_again(later)
    assert [(message.partition(), message.error() is None) for message in given] == [
        *[(1, False), (3, True), (3, False)],
        *[(0, True), (0, False)],
    ]
    assert received.without_ends_again(later) is later
    received.ends_come_again({})
    received.forget()
    assert received.without_ends_again(later) is later


def test_who_looks_from_another_thread_never_finds_less_than_nothing() -> None:
    """Messages come, and all are handed over, after it was counted how many there are and before it is known of how
    many: the thread that stores while the application works ended by a ValueError, and nothing was committed any more.
    """
    held = HeldMessages()

    class CountedMeanwhile(list[Message]):
        def __len__(self) -> int:
            count = super().__len__()
            if held.first == 0:
                held.messages += [_message(0, 1), _message(0, 2)]
                held.first = 3
            return count

    held.messages = CountedMeanwhile([_message(0, 0)])
    assert len(held) == 1
    assert (held.there, len(held)) == (0, 0)
