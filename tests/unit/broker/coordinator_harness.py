"""A coordinator whose clock and members are the test's."""

from kclient_quota.broker.groups.classic.coordinator import GroupConfig, GroupCoordinator
from kclient_quota.broker.groups.classic.group import GroupState
from kclient_quota.broker.groups.classic.requests import Join, JoinResult, Sync, SyncResult
from kclient_quota.wire.error_codes import ErrorCode

GROUP = "g"


SESSION_MS = 10_000


REBALANCE_MS = 30_000


class Harness:
    """A coordinator, a clock and the answers so far by ticket."""

    def __init__(self, **config):
        self.coordinator = GroupCoordinator(GroupConfig(**config))
        self.now_ms = 0
        self.answers = {}
        self._fresh = 0

    @property
    def group(self):
        return self.coordinator.groups[GROUP]

    def _collect(self):
        self.answers |= {c.ticket: c.result for c in self.coordinator.take_completions()}

    def join(self, member_id="", *, instance=None, protocols=(("range", b"m"),), required=True, **changes):
        self._fresh += 1
        request = Join(
            GROUP,
            member_id,
            instance,
            "client",
            "/127.0.0.1",
            changes.pop("session_ms", SESSION_MS),
            changes.pop("rebalance_ms", REBALANCE_MS),
            changes.pop("protocol_type", "consumer"),
            protocols,
            required,
            changes.pop("skipping", True),
        )
        answer = self.coordinator.join(request, f"id{self._fresh}", self.now_ms)
        self._collect()
        return answer

    def sync(self, joined, assignments=(), **changes):
        request = Sync(
            GROUP,
            changes.get("generation_id", joined.generation_id),
            joined.member_id,
            changes.get("instance"),
            changes.get("protocol_type"),
            changes.get("protocol_name"),
            tuple(assignments),
        )
        answer = self.coordinator.sync(request, self.now_ms)
        self._collect()
        return answer

    def heartbeat(self, joined, *, generation_id=None, instance=None):
        generation = joined.generation_id if generation_id is None else generation_id
        error = self.coordinator.heartbeat(GROUP, joined.member_id, instance, generation, self.now_ms)
        self._collect()
        return error

    def leave(self, *leavers):
        errors = self.coordinator.leave(GROUP, leavers, self.now_ms)
        self._collect()
        return errors

    def pass_ms(self, duration_ms):
        self.now_ms += duration_ms
        self.coordinator.tick(self.now_ms)
        self._collect()

    def answer(self, pending):
        return self.answers[pending.ticket]

    def member(self, **changes):
        """A member through both of its JoinGroup requests: its answer, or Pending."""
        first = self.join(**changes)
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED
        return self.join(first.member_id, **changes)

    def stable(self, count=2, **changes):
        """A stable group of `count` members; returns their last JoinResults, the leader's first."""
        joined = [self.member(**changes)]
        for _ in range(count - 1):
            waiting = self.member(**changes)
            rejoined = [self.join(j.member_id, **changes) for j in joined]
            joined = [r if isinstance(r, JoinResult) else self.answer(r) for r in rejoined]
            joined.append(self.answer(waiting))
        leader = next(j for j in joined if j.leader == j.member_id)
        syncs = [self.sync(j) for j in joined if j is not leader]
        done = self.sync(leader, [(j.member_id, j.member_id.encode()) for j in joined])
        assert done == SyncResult(ErrorCode.NONE, "consumer", "range", leader.member_id.encode())
        assert all(self.answer(s).error is ErrorCode.NONE for s in syncs)
        assert self.group.state is GroupState.STABLE
        return [leader, *(j for j in joined if j is not leader)]
