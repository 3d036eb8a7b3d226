"""What lanes, tenants and deadlines make of a producer's core."""

from itertools import islice
from typing import Any

from kclient_quota.clients.librdkafka.partitioner import Partitioner
from kclient_quota.clients.limits import Limit
from kclient_quota.clients.producer.core import Lost, ProducerCore, Sent
from kclient_quota.clients.producer.routes import Routes
from kclient_quota.clients.producer.sender.queue_metrics import QueueMetrics
from kclient_quota.clients.producer.sorting import Sorting
from kclient_quota.config import split
from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.lanes import Full, Lane
from kclient_quota.pacing.sending.send_pace import SendPace
from kclient_quota.pacing.sending.send_queue import SendQueue
from kclient_quota.pacing.sending.turns import Waiting
from tests.unit.clients.producer_world import LIMITED, message


def core_of(*lanes: Lane) -> ProducerCore:
    def new_queue(_broker: int, of: Limit) -> SendQueue:
        return SendQueue(SendPace(Pacer(of.byte_rate), limit=of.byte_rate), lanes)

    return ProducerCore(new_queue, Routes(Partitioner()), LIMITED, 1_000)


def of(lane: str, now_ms: int = 0, **more: Any) -> Waiting:
    made = message(1_000, now_ms)
    made.lane = lane
    for name, value in more.items():
        setattr(made, name, value)
    return made


def take(core: ProducerCore, now_ms: int = 0) -> list[Waiting]:
    return list(core.admit(now_ms, lambda _: True, lambda _: None))


def test_who_waits_for_room_in_one_lane_is_not_before_those_of_another() -> None:
    core = core_of(Lane("alerts", strict=True), Lane("bulk"))
    while not core.offer(of("bulk"), 0):
        pass
    assert core.offer(of("bulk"), 0)
    assert core.free_bytes(0, "bulk") == 0
    assert core.free_bytes(0, "alerts") > 1_000
    assert core.offer(of("alerts"), 0) == 0
    assert next(core.sent(0)).messages[0].lane == "alerts"


def test_who_waits_for_room_on_behalf_of_one_tenant_is_not_before_those_of_another() -> None:
    core = core_of()
    while not core.offer(of("", tenant="loud"), 0):
        pass
    assert core.offer(of("", tenant="quiet"), 0) == 0


def test_messages_of_no_tenant_take_nothing_from_one() -> None:
    lanes = {"": {"full": "drop-oldest"}}
    sorting = Sorting(split({"quota.lanes": lanes, "quota.tenant.of": lambda record: record.key})[1])
    core, sent = core_of(*sorting.lanes), []
    for turn in range(500):
        for key in (*["quiet"] * (turn % 5 == 0), *[None] * 20):
            each = message(1_000, turn * 20, key=key)
            sorting.sort(each)
            core.offer(each, turn * 20)
        for batch in core.sent(turn * 20):
            sent += batch.messages
            core.on_delivered(batch.broker, sum(each.raw_bytes for each in batch.messages), turn * 20)
    lost = core.lost(10_000)
    assert {why for _, why in lost} == {Lost.DROPPED}
    assert "quiet" not in {each.payload.key for each, _ in lost}
    assert len(sent) > 400


def test_a_lane_that_drops_lets_nobody_wait_even_under_a_long_throttle() -> None:
    core = core_of(Lane("new", full=Full.DROP_NEWEST), Lane("old", full=Full.DROP_OLDEST))
    core.offer(of(""), 0)
    core.on_throttle(-1, 20_000, 0)
    for lane in ("new", "old"):
        for number in range(100):
            assert core.offer(of(lane, key=number), 0) == 0
    lost = core.lost(0)
    assert {why for _, why in lost} == {Lost.DROPPED}
    dropped = {lane: [each.key for each, _ in lost if each.lane == lane] for lane in ("new", "old")}
    assert dropped["new"][-1] == 99
    assert dropped["old"][0] == 0
    assert 99 not in dropped["old"]
    assert core.lost(0) == []


def test_who_waits_for_room_until_nothing_is_worth_sending_any_more_is_told_then() -> None:
    core = core_of()
    while not core.offer(of(""), 0, is_patient=False):
        pass
    late = of("", expires_at_ms=50)
    core.offer(late, 0)
    core.on_throttle(-1, 20_000, 0)
    take(core, 10)
    assert core.wait_ms(10) <= 40
    assert late in take(core, 50)
    assert core.lost(50) == [(late, Lost.EXPIRED)]
    assert late not in [each for sent in core.sent(60_000) for each in sent.messages]


def test_the_newer_message_of_a_key_takes_the_older_ones_place() -> None:
    core = core_of(Lane("state", newest=True))
    first, second = of("state", key=b"k"), of("state", key=b"k")
    assert core.offer(first, 0) == core.offer(second, 0) == 0
    assert core.lost(0) == [(first, Lost.REPLACED)]
    assert [each for sent in core.sent(0) for each in sent.messages] == [second]


def test_what_librdkafka_has_refused_meanwhile_is_reported_as_replaced() -> None:
    core = core_of(Lane("state", newest=True))
    first, second = of("state", key=b"k"), of("state", key=b"k")
    core.offer(first, 0)
    (sent,) = core.sent(0)
    core.offer(second, 0)
    core.put_back(sent, sent.messages, 0)
    assert core.lost(0) == [(first, Lost.REPLACED)]
    assert [each for sent in core.sent(60_000) for each in sent.messages] == [second]


def test_state_and_figures_by_lane() -> None:
    core = core_of(Lane("alerts", strict=True))
    for lane in ("alerts", "alerts", ""):
        core.offer(of(lane), 0)
    found = core.state(1, 30)[1].lanes
    assert {name: (lane.messages, lane.raw_bytes, lane.waits_ms) for name, lane in found.items()} == {
        "alerts": (2, 2_000, 30),
        "": (1, 1_000, 30),
    }
    figures = QueueMetrics("app", found)
    sent = next(islice(core.sent(40), 1))
    figures.on_sent(Sent(sent.broker, 0, sent.messages, 500 * len(sent.messages), 0.5), 40)
    figures.on_lost("alerts", Lost.EXPIRED)
    figures.on_lost("", Lost.DROPPED)
    figures.on_lost("", Lost.REPLACED)
    seen = {(name.name, name.tag("lane")): value for name, value in figures.collect(50).items()}
    assert seen["quota-messages-expired-total", None] == seen["quota-messages-expired-total", "alerts"] == 1
    assert seen["quota-messages-dropped-total", None] == seen["quota-messages-dropped-total", ""] == 2
    assert seen["quota-queue-time-avg", "alerts"] == seen["quota-queue-time-max", None] == 40
    assert seen["quota-messages-per-byte-avg", None] == 1 / 500
    assert seen["quota-payload-per-byte-avg", None] == 988 / 500
    assert seen["quota-compression-rate-avg", None] == seen["quota-batch-fill-avg", None] == 0.5


def test_without_lanes_there_are_figures_of_the_client_only() -> None:
    assert {name.tag("lane") for name in QueueMetrics("app", [""]).collect(0)} == {None}
