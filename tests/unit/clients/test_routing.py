"""Where messages go: the leader of a key's partition, or the partition whose broker may take them soonest."""

from collections import Counter

from kclient_quota.clients.admission import Gate
from kclient_quota.clients.librdkafka.partitioner import Partitioner
from kclient_quota.clients.routing import NO_LEADER, Router
from kclient_quota.pacing.pacer import Pacer

LIMIT = 100_000
COST = 1_000


class Gates(dict[int, Gate]):
    def __missing__(self, broker: int) -> Gate:
        self[broker] = Gate(Pacer(LIMIT), LIMIT)
        return self[broker]


def learn(leaders: dict[int, int], gates: Gates, router: Router | None = None) -> tuple[Router, Gates]:
    router = router or Router(Partitioner())
    router.learn("orders", leaders, gates.__getitem__, 0)
    return router, gates


def spread(router: Router, seconds: int) -> Counter[int]:
    """Messages without a key as fast as they may go; how many each partition got."""
    route = router.route("orders")
    assert route is not None
    went: Counter[int] = Counter()
    now_ms = 0
    while now_ms < seconds * 1000:
        gate = route.gates[route.partition]
        if gate.left < COST:
            wait_ms = route.steer(COST, now_ms)
            gate = route.gates[route.partition]
            if wait_ms:
                now_ms += wait_ms
                continue
            gate.admit(COST, now_ms)
        gate.left -= COST
        route.count(COST)
        gate.settle(gate.handed, now_ms)
        went[route.partition] += 1
    return went


def test_messages_without_a_key_use_every_brokers_quota_evenly() -> None:
    router, _ = learn({0: 1, 1: 2, 2: 3}, Gates())
    went = spread(router, 30)
    assert sum(went.values()) * COST >= 0.9 * 3 * LIMIT * 30
    assert max(went.values()) <= 1.1 * min(went.values())


def test_partitions_of_one_broker_share_evenly() -> None:
    router, _ = learn({0: 1, 1: 1, 2: 1, 3: 1}, Gates())
    went = spread(router, 30)
    assert max(went.values()) <= 1.1 * min(went.values())


def test_a_throttled_broker_is_gone_around() -> None:
    router, gates = learn({0: 1, 1: 2}, Gates())
    gates[1].on_throttle(60_000, 0)
    went = spread(router, 20)
    assert went[0] == 0
    assert went[1] * COST >= 0.85 * LIMIT * 20


def test_a_partition_without_a_leader_is_left_out() -> None:
    router, _ = learn({0: NO_LEADER, 1: 2}, Gates())
    assert set(spread(router, 5)) == {1}


def test_a_key_is_gated_by_the_leader_of_its_partition() -> None:
    router, gates = learn({0: 1, 1: 2, 2: 3}, Gates())
    route = router.route("orders")
    assert route is not None
    target = router.target(route, b"some key", -1)
    assert target == Partitioner().partition(b"some key", 3)
    assert target is not None
    assert route.gates[target] is gates[route.leaders[target]]
    assert router.target(route, None, -1) is None
    assert router.target(route, b"some key", 2) == 2


def test_a_change_of_leader_keeps_what_was_sent_where() -> None:
    router, gates = learn({0: 1, 1: 2}, Gates())
    spread(router, 5)
    before = router.route("orders")
    assert before is not None
    learn({0: 2, 1: 1}, gates, router)
    after = router.route("orders")
    assert after is not None
    assert after.sent == before.sent
    assert after.gates[0] is gates[2]


def test_an_unknown_topic_has_no_route() -> None:
    assert Router(Partitioner()).route("nowhere") is None
