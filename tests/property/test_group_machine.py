"""Any order of joins, syncs, heartbeats, leaves and silence keeps a classic group sound and nobody waiting for ever."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kclient_quota.broker.groups.classic.coordinator import GroupConfig, GroupCoordinator
from kclient_quota.broker.groups.classic.group import GroupState
from kclient_quota.broker.groups.classic.requests import Join, JoinResult, Leaver, Pending, Sync, SyncResult
from kclient_quota.wire.error_codes import ErrorCode
from tests.property.examples import examples

SESSION_MS = 6_000
REBALANCE_MS = 9_000
DELAY_MS = 1_000
LONGEST_WAIT_MS = 2 * REBALANCE_MS + DELAY_MS
PROTOCOLS = ((("range", b"r"), ("sticky", b"s")), (("sticky", b"s"), ("range", b"r")), (("range", b"other"),))


@dataclass
class Client:
    """One consumer: what it was told last and what it waits for."""

    instance: str | None
    protocols: tuple
    member_id: str = ""
    joined: JoinResult | None = None
    waiting: Pending | None = None
    since_ms: int = 0
    assignment: bytes | None = None


class Groups(RuleBasedStateMachine):
    """Six clients, two of them static, that behave and misbehave."""

    def __init__(self):
        super().__init__()
        self.coordinator = GroupCoordinator(GroupConfig(initial_rebalance_delay_ms=DELAY_MS))
        self.now_ms = 0
        self.fresh = 0
        instances = (None, None, None, None, "a", "b")
        self.clients = [Client(instance, PROTOCOLS[i % 3]) for i, instance in enumerate(instances)]
        self.highest_generation = 0

    clients_st = st.integers(0, 5)

    def _take(self):
        for completion in self.coordinator.take_completions():
            owners = [c for c in self.clients if c.waiting and c.waiting.ticket == completion.ticket]
            assert len(owners) <= 1, "one ticket has one owner"
            for client in owners:
                client.waiting = None
                self._told(client, completion.result)

    def _told(self, client, result):
        if isinstance(result, Pending):
            client.waiting, client.since_ms = result, self.now_ms
        elif isinstance(result, JoinResult):
            client.member_id, client.assignment = result.member_id, None
            client.joined = result if result.error is ErrorCode.NONE else None
        elif result.error is ErrorCode.NONE:
            client.assignment = result.assignment

    @rule(number=clients_st)
    def join(self, number):
        client = self.clients[number]
        if client.waiting:
            return
        self.fresh += 1
        request = Join(
            "g", client.member_id, client.instance, "c", "h", SESSION_MS, REBALANCE_MS, "consumer", client.protocols
        )
        result = self.coordinator.join(request, str(self.fresh), self.now_ms)
        self._told(client, result)
        self._take()

    @rule(numbers=st.sets(st.integers(0, 5), min_size=2))
    def join_together(self, numbers):
        """What a group of well-behaved clients does at its start; who was in already has to rejoin too."""
        for _ in range(2):
            for number in numbers:
                self.join(number)
        self.pass_time(3 * DELAY_MS)

    @rule(number=clients_st)
    def forget_and_join(self, number):
        """A crash: the client comes back without its id, its former request unanswered."""
        client = self.clients[number]
        client.member_id, client.joined, client.waiting = "", None, None
        self.join(number)

    @rule(number=clients_st, complete=st.booleans())
    def sync(self, number, complete):
        client = self.clients[number]
        if client.waiting or client.joined is None:
            return
        joined = client.joined
        assignments = tuple((m.member_id, b"of " + m.member_id.encode()) for m in joined.members) if complete else ()
        request = Sync("g", joined.generation_id, joined.member_id, client.instance, assignments=assignments)
        self._told(client, self.coordinator.sync(request, self.now_ms))
        self._take()

    @rule(number=clients_st)
    def heartbeat(self, number):
        client = self.clients[number]
        if client.joined is not None:
            error = self.coordinator.heartbeat(
                "g", client.member_id, client.instance, client.joined.generation_id, self.now_ms
            )
            if error in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
                client.member_id, client.joined = "", None
            self._take()

    @rule(number=clients_st)
    def leave(self, number):
        client = self.clients[number]
        if client.member_id:
            self.coordinator.leave("g", [Leaver(client.member_id, client.instance)], self.now_ms)
            self._take()
            client.member_id, client.joined = "", None

    @rule(duration_ms=st.sampled_from((1, 400, 1_000, 3_000, 5_999, 9_000)))
    def pass_time(self, duration_ms):
        """Time passes deadline by deadline, as it does under an adapter's timer."""
        end_ms = self.now_ms + duration_ms
        while (due := self.coordinator.next_deadline_ms()) is not None and due <= end_ms:
            self.now_ms = max(self.now_ms, due)
            self.coordinator.tick(self.now_ms)
            self._take()
        self.now_ms = end_ms

    @rule(alive=st.sets(st.integers(0, 5), min_size=1))
    def pass_time_alive(self, alive):
        """Twenty-four seconds in which some clients do nothing but heartbeat."""
        for _ in range(8):
            for number in alive:
                self.heartbeat(number)
            self.pass_time(3_000)
            self.nobody_waits_beyond_the_deadline()

    @invariant()
    def nobody_waits_beyond_the_deadline(self):
        for client in self.clients:
            assert client.waiting is None or self.now_ms - client.since_ms <= LONGEST_WAIT_MS

    @invariant()
    def group_is_sound(self):
        group = self.coordinator.groups.get("g")
        if group is None:
            return
        assert group.generation_id >= self.highest_generation
        self.highest_generation = group.generation_id
        assert (group.leader_id in group.members) if group.members else (group.leader_id is None)
        assert set(group.static_members.values()) <= set(group.members)
        assert group.pending_sync <= set(group.members)
        assert group.pending_join.isdisjoint(group.members)
        waiting = [m for m in group.members.values() if m.join_ticket or m.sync_ticket]
        if group.state is GroupState.EMPTY:
            assert not group.members
        elif group.state is GroupState.STABLE:
            assert group.members
            assert not waiting
        elif group.state is GroupState.COMPLETING_REBALANCE:
            assert all(m.join_ticket is None for m in waiting)
        else:
            assert all(m.sync_ticket is None for m in waiting)
        if group.state in {GroupState.COMPLETING_REBALANCE, GroupState.STABLE}:
            common = set.intersection(*({name for name, _ in m.protocols} for m in group.members.values()))
            assert group.protocol_name in common

    @invariant()
    def every_assignment_is_the_members_own(self):
        group = self.coordinator.groups.get("g")
        for client in self.clients:
            held = client.assignment
            current = group is not None and group.state is GroupState.STABLE and client.joined is not None
            if held and current and client.joined.generation_id == group.generation_id:
                member = group.members.get(client.member_id)
                assert member is None or member.assignment == held

    @precondition(lambda self: "g" in self.coordinator.groups)
    @invariant()
    def members_have_a_deadline(self):
        """Whoever is in the group, or holds an id of it, is watched by some deadline."""
        group = self.coordinator.groups["g"]
        if group.members or group.pending_join:
            assert self.coordinator.next_deadline_ms() is not None

    def teardown(self):
        """Left alone, everybody is answered and the group empties."""
        self.pass_time(400_000)
        group = self.coordinator.groups.get("g")
        assert group is None or (not group.members and not group.pending_join and group.state is GroupState.EMPTY)
        assert all(isinstance(c, JoinResult | SyncResult) for c in self.coordinator.take_completions())


Groups.TestCase.settings = settings(max_examples=examples(50, 120), stateful_step_count=40, deadline=None)
test_groups_stay_sound = Groups.TestCase
