"""What is assumed of a batch's bytes on the wire before anything, or enough of it, has been seen."""

import pytest

from kclient_quota.pacing.sending.batch_cost import BatchCost


def test_names_of_topic_and_client_are_known_to_be_in_every_request():
    short, long = BatchCost(), BatchCost()
    short.names_bytes, long.names_bytes = 20, 120
    for cost in (short, long):
        cost.observe(10, 10_000, 10_000 + 10 * round(90 + cost.names_bytes))
    assert short.overhead == pytest.approx(110)
    assert long.overhead == pytest.approx(210)
    assert short.part == long.part == pytest.approx(1.0)


def test_the_first_message_of_a_compressed_batch_takes_no_more_than_it_is():
    found = []
    for message_bytes in (30, 300, 10_000):
        cost = BatchCost(compressed=True)
        cost.observe(10, 10 * message_bytes * 20, 10 * message_bytes * 10, message_bytes)
        found.append(cost.overhead)
    assert found == pytest.approx([180, 290, 290])


def test_what_does_not_compress_is_reckoned_as_if_it_were_not_compressed():
    cost = BatchCost(compressed=True)
    assert cost.compresses
    assert cost.overhead == 290
    cost.observe(10, 10_000, 11_500)
    assert not cost.compresses
    assert cost.overhead == pytest.approx(150)
    for _ in range(50):
        cost.observe(10, 10_000, 3_000)
    assert cost.compresses
    assert not BatchCost().compresses


@pytest.mark.parametrize("compressed", [False, True])
def test_framing_of_what_does_not_compress_is_known_although_compression_is_set(compressed):
    cost = BatchCost(compressed=compressed)
    found = []
    for number in range(60):
        messages, late = (47, 55, 40, 58)[number % 4], (-2, 1, 3, -2)[number % 4]
        cost.observe(10, 1_000 * messages, 1_500 + 1_000 * (messages + late), 1_000)  # what is on its way is told later
        found.append(cost.overhead)
    assert not cost.compresses
    assert found == pytest.approx([150] * 60)


def test_what_small_batches_of_small_messages_take_is_learnt_although_framing_outweighs_what_is_saved():
    cost = BatchCost(compressed=True)
    for number in range(60):
        raw = (300, 500, 400, 600)[number % 4]
        cost.observe(1, raw, 220 + raw // 2, 30)
    assert cost.compresses
    assert cost.overhead == pytest.approx(220, rel=0.1)


def test_what_was_seen_before_counts_for_less_after_an_observation_of_several():
    once, often = BatchCost(compressed=True), BatchCost(compressed=True)
    for cost, worth in ((once, 1), (often, 8)):
        for part in (0.5, 0.25):
            cost.observe(10, 100_000, 1_500 + int(100_000 * part), 1_000, worth=worth)
    assert often.part < once.part
