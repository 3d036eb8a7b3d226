"""What a message is taken to cost: data that compresses less than what came before shows while a throttle lasts."""

from kclient_quota.clients.librdkafka.partitioner import Partitioner
from kclient_quota.clients.limits import Limit
from kclient_quota.clients.producer.core import ProducerCore
from kclient_quota.clients.producer.routes import Routes
from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.batch_cost import BatchCost
from kclient_quota.pacing.sending.send_pace import SendPace
from kclient_quota.pacing.sending.send_queue import SendQueue
from tests.unit.clients.producer_world import LIMITED, message

LETTERS = 0.01
"""Bytes on the wire for each raw byte of what compresses well."""


def core() -> ProducerCore:
    def new_queue(_broker: int, of: Limit) -> SendQueue:
        return SendQueue(SendPace(Pacer(of.byte_rate), BatchCost(compressed=True), of.byte_rate))

    return ProducerCore(new_queue, Routes(Partitioner()), LIMITED, 1_000)


def sent_by(now_ms: int, sender: ProducerCore) -> int:
    """Fill the queue; raw bytes that leave."""
    while not sender.offer(message(1_000, now_ms, partition=0), now_ms, is_patient=False):
        pass
    raw = 0
    for sent in sender.sent(now_ms):
        raw += sum(each.raw_bytes for each in sent.messages)
    return raw


def test_noise_after_letters_is_told_from_letters_before_anything_of_it_is_delivered() -> None:
    sender = core()
    sender.brokers.learn_routes({"orders": {0: 1}}, 1, 0)
    now_ms = 0
    for _ in range(200):
        now_ms += 100
        raw = sent_by(now_ms, sender)
        if raw:
            sender.on_delivered(sender.brokers.get(1), raw, now_ms)
            sender.on_wire([(1, round(raw * LETTERS) + 350)], now_ms)
    pace = sender.brokers.get(1).queue.pace
    assert pace.wire_of(100_000) < 2_000
    raw = 0
    while not raw:
        now_ms += 100
        raw = sent_by(now_ms, sender)
    assert raw > 100_000
    sender.on_wire([(1, raw // 2)], now_ms + 20)  # the rest is still in librdkafka
    assert pace.wire_of(100_000) > 40_000
    sender.on_throttle(1, 9_000, now_ms + 30)
    for _ in range(120):
        now_ms += 100
        assert sent_by(now_ms, sender) < 100_000, "at the price of letters"
    assert sender.wait_ms(now_ms) < 15_000, "what the broker has forgotten is not paid for"


def test_what_is_known_to_be_our_own_doing_later_is_given_up_to_nobody() -> None:
    sender = core()
    sender.brokers.learn_routes({"orders": {0: 1}}, 1, 0)
    now_ms, raw = 0, 0
    while now_ms < 20_000 or not raw:
        now_ms += 100
        raw = sent_by(now_ms, sender)
        if raw and now_ms < 20_000:
            sender.on_delivered(sender.brokers.get(1), raw, now_ms)
            sender.on_wire([(1, round(raw * LETTERS) + 350)], now_ms)
    pace = sender.brokers.get(1).queue.pace
    rate = pace.rate()
    sender.on_throttle(1, 6_000, now_ms + 20)  # of noise, of which only the statistics tell that it was noise
    assert pace.rate() < 0.6 * rate
    sender.on_wire([(1, 800_000)], now_ms + 500)
    sender.on_delivered(sender.brokers.get(1), raw, now_ms + 6_000)
    most = 0.0
    for later_ms in range(now_ms + 6_000, now_ms + 20_000, 100):
        sent_by(later_ms, sender)
        most = max(most, pace.rate())
    assert most >= 0.97 * rate


def test_who_is_to_come_again_is_told_when_what_was_sent_ahead_is_paid_back() -> None:
    sender = core()
    sender.brokers.learn_routes({"orders": {0: 1}}, 1, 0)
    large = message(1_000_000, 1_000, partition=0)
    assert not sender.offer(large, 1_000, is_patient=False)
    assert list(sender.sent(1_000))
    sender.on_delivered(sender.brokers.get(1), 1_000_000, 1_010)
    while not sender.offer(message(1_000, 1_020, partition=0), 1_020, is_patient=False):
        pass
    again_ms, broker = sender.retry(message(1_000, 1_020, partition=0), 1_020)
    assert broker in {None, 1}
    assert again_ms >= 10_000, "the window holds a megabyte, of which 50 kB may go a second"
