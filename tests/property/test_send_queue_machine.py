"""The send queue against a model of it: nothing lost, nothing twice, order kept, bytes and deficits bounded."""

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kclient_quota.pacing.pacer import Pacer
from kclient_quota.pacing.sending.batch_cost import BatchCost
from kclient_quota.pacing.sending.lanes import Full, Lane
from kclient_quota.pacing.sending.send_pace import SendPace
from kclient_quota.pacing.sending.send_queue import NEVER, Grant, SendQueue
from kclient_quota.pacing.sending.turns import ANY_PARTITION, Waiting
from tests.property.examples import examples

QUOTA = 20_000
MAX_BYTES = 60_000
LARGEST = 3_000
LANES = (
    Lane("alerts", strict=True),
    Lane("orders", weight=3),
    Lane("lossy", full=Full.DROP_OLDEST, deadline_ms=700),
    Lane("newest", full=Full.DROP_NEWEST, newest=True),
)
NAMES = ("alerts", "orders", "lossy", "newest", "", "unheard of")


class SendQueueMachine(RuleBasedStateMachine):
    """Messages are numbered in the order in which they are offered."""

    def __init__(self):
        super().__init__()
        self.now = 1_000_000
        self.pace = SendPace(Pacer(QUOTA), BatchCost(), QUOTA, linger_ms=5)
        self.queue = SendQueue(self.pace, LANES, max_bytes=MAX_BYTES)
        self.count = 0
        self.waiting = {}  # number: message, of all that the queue answers for
        self.gone = set()  # numbers of all that it has given back, in whatever way
        self.last = defaultdict(lambda: -1)  # the last number granted of each order that is kept
        self.flying = []

    def leave(self, message):
        assert message.payload not in self.gone, "given back twice"
        del self.waiting[message.payload]
        self.gone.add(message.payload)

    @rule(
        lane=st.sampled_from(NAMES),
        partition=st.sampled_from([0, 1, 2, ANY_PARTITION]),
        nbytes=st.integers(20, LARGEST),
        tenant=st.sampled_from([None, None, "a", "b"]),
        key=st.sampled_from([None, "x", "y"]),
        deadline_ms=st.sampled_from([None, None, 300, 5_000]),
        copies=st.integers(1, 12),
    )
    def offer(self, lane, partition, nbytes, tenant, key, deadline_ms, copies):
        for _ in range(copies):
            number, self.count = self.count, self.count + 1
            expires = None if deadline_ms is None else self.now + deadline_ms
            message = Waiting("t", partition, nbytes, self.now, number, expires, lane, tenant, key)
            offered = self.queue.offer(message)
            if not offered.accepted:
                assert offered.wait_ms >= 1
                assert not offered.dropped
                assert not offered.replaced
                return
            self.waiting[number] = message
            for other in (*offered.dropped, *offered.replaced):
                self.leave(other)

    @rule(elapsed_ms=st.integers(0, 3_000))
    def pass_time(self, elapsed_ms):
        self.now += elapsed_ms

    @rule(most=st.integers(1, 20))
    def send(self, most):
        for _ in range(most):
            grant = self.queue.next_grant(self.now)
            if not isinstance(grant, Grant):
                assert (grant == NEVER) == (not self.waiting)
                assert grant > 0
                return
            self.check(grant)
            self.flying.append(grant)

    def check(self, grant):
        assert grant.messages
        assert grant.raw_bytes == sum(message.raw_bytes for message in grant.messages)
        for message in grant.messages:
            assert message.place == (grant.topic, grant.partition)
            self.leave(message)
            # Who takes the place of an older message of its key goes before those offered in between.
            if message.lane != "newest":
                order = (grant.lane, message.place, message.tenant)
                assert message.payload > self.last[order]
                self.last[order] = message.payload
        strict = [message for message in self.waiting.values() if message.lane == "alerts"]
        assert grant.lane == "alerts" or not strict

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def deliver(self, data):
        grant = self.flying.pop(0)
        throttle_ms = data.draw(st.sampled_from([0, 0, 0, 40, 2_000]))
        if throttle_ms:
            self.pace.on_throttle(throttle_ms, self.now)
        self.pace.on_delivered(grant.raw_bytes, self.now)

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def refuse(self, data):
        """Librdkafka's queue is full for the last ones of a grant that has just been handed over."""
        grant = self.queue.next_grant(self.now)
        if not isinstance(grant, Grant):
            return
        self.check(grant)
        taken = data.draw(st.integers(0, len(grant.messages)))
        for message in grant.messages[taken:]:
            self.gone.remove(message.payload)
            self.waiting[message.payload] = message
            if message.lane != "newest":
                self.last[grant.lane, message.place, message.tenant] = message.payload - 1
        if taken and grant.messages[0].lane != "newest":
            for message in grant.messages[:taken]:
                order = (grant.lane, message.place, message.tenant)
                self.last[order] = max(self.last[order], message.payload)
        for message in reversed(grant.messages[taken:]):
            if message.lane != "newest":
                order = (grant.lane, message.place, message.tenant)
                self.last[order] = min(self.last[order], message.payload - 1)
        for message in reversed(grant.messages[taken:]):
            self.pace.give_back(message.raw_bytes)
            self.queue.put_back(message)
        self.pace.on_delivered(sum(message.raw_bytes for message in grant.messages[:taken]), self.now)

    @rule()
    def expire(self):
        for message in self.queue.expire(self.now):
            assert message.expires_at_ms <= self.now
            self.leave(message)
        assert all(
            message.expires_at_ms is None or message.expires_at_ms > self.now for message in self.waiting.values()
        )

    @rule(wire=st.integers(0, 40_000))
    def tell_statistics(self, wire):
        self.pace.on_wire(wire, self.now)

    @rule(limit=st.sampled_from([QUOTA, 2_000, 1_000_000, None]))
    def change_limit(self, limit):
        self.pace.set_limit(limit, self.now)

    @rule()
    def purge(self):
        for message in self.queue.purge():
            self.leave(message)
        assert not self.waiting

    @invariant()
    def counts_are_right(self):
        assert len(self.queue) == len(self.waiting)
        assert self.queue.raw_bytes == sum(message.raw_bytes for message in self.waiting.values())
        states = self.queue.state(self.now)
        assert sum(state.messages for state in states.values()) == len(self.waiting)
        deadlines = [each.expires_at_ms for each in self.waiting.values() if each.expires_at_ms is not None]
        assert self.queue.next_expiry_ms == min(deadlines, default=None)

    @invariant()
    def bytes_are_bounded(self):
        for state in self.queue.state(self.now).values():
            # What waits for a turn, and three tenants' lines beside it; what was put back comes on top.
            assert state.raw_bytes <= 4 * MAX_BYTES + 20 * LARGEST

    def teardown(self):
        """However it went on: what waits is sent in the end."""
        for _ in range(2_000):
            for message in self.queue.expire(self.now):
                self.leave(message)
            grant = self.queue.next_grant(self.now)
            if isinstance(grant, Grant):
                self.check(grant)
                self.pace.on_delivered(grant.raw_bytes, self.now)
            elif grant == NEVER:
                break
            else:
                self.pace.on_delivered(self.pace.outstanding, self.now)
                self.now += int(grant)
        assert not self.waiting


SendQueueMachine.TestCase.settings = settings(max_examples=examples(50, 100), stateful_step_count=40, deadline=None)
TestSendQueue = SendQueueMachine.TestCase
