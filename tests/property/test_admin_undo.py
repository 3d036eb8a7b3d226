"""Runs of `apply` that die at any write, on the disk or on the wire, and what `undo` then makes of them."""

import os
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kclient_quota.admin import applying, journal
from kclient_quota.admin.applying import Applier, ConflictError
from kclient_quota.admin.journal import Journal, read_runs
from kclient_quota.admin.results import AlterationUnknownError, AlterClientQuotasResult
from kclient_quota.admin.sources import put, records_of
from kclient_quota.admin.unit_quotas import UnitQuotas
from kclient_quota.admin.units import QuotaUnit, Sources, altered
from kclient_quota.cluster.brokers import ClusterMetadata
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.quota.entity import ClientQuotaEntity
from kclient_quota.testing.clock import ManualClock
from tests.property.examples import examples

RATE = QuotaUnit("producer_byte_rate", "broker_bps")
BPS = QuotaUnit("producer_byte_rate", "bps")
PERCENT = QuotaUnit("request_percentage", "percent")
USERS = ["a", "b", "c", "line\u2028break", "d\u0085"]


class DiedError(BaseException):
    """The process is gone."""


class World:
    """A cluster, a place for sources and a disk, of which the n-th write fails in some way; 0: none."""

    def __init__(self):
        self.written: dict = {}
        self.kept: dict = {}
        self.fails_at, self.how, self.writes = 0, "", 0

    def trips(self):
        self.writes += 1
        return self.writes == self.fails_at

    # -- the cluster, as QuotaAdmin shows it

    def describe_client_quotas(self, wanted, *, request_timeout):
        return done({entity: dict(values) for entity, values in self.written.items() if values})

    def describe_cluster(self, topics=(), *, request_timeout):
        return done(ClusterMetadata("one", 1, {}, {("t", 0): 1, ("t", 1): 2}, {}))

    def alter_client_quotas(self, alterations, *, validate_only=False, request_timeout):
        results = AlterClientQuotasResult({each.entity: done(None) for each in alterations})
        if validate_only:
            return results
        trips = self.trips()
        for number, each in enumerate(alterations):
            if trips and (self.how == "unsent" or (self.how == "half" and number >= len(alterations) // 2)):
                results[each.entity] = lost()
                continue
            values = self.written.setdefault(each.entity, {})
            for op in each.ops:
                if op.value is None:
                    values.pop(op.key, None)
                else:
                    values[op.key] = op.value
            if trips:
                results[each.entity] = lost()
        if trips and self.how in {"dies", "torn"}:
            raise DiedError
        return results

    # -- the place for sources

    def load(self):
        sources = Sources()
        for key, value in self.kept.items():
            put(sources, key, value)
        return sources

    def save(self, before, after):
        old, new = records_of(before), records_of(after)
        changed = [key for key in {**old, **new} if old.get(key) != new.get(key)]
        trips = self.trips()
        for key in changed[: len(changed) // 2] if trips and self.how != "answerless" else changed:
            self.kept[key] = new.get(key)
        self.kept = {key: value for key, value in self.kept.items() if value is not None}
        if trips:
            raise DiedError if self.how in {"dies", "torn"} else ClusterError("the connection was lost")

    def state(self):
        return {entity: values for entity, values in self.written.items() if values}, dict(self.kept)


class Disk:
    """`os`, but that some writes are torn."""

    def __init__(self, world):
        self._world = world

    def __getattr__(self, name):
        return getattr(os, name)

    def write(self, descriptor, data):
        if not self._world.trips():
            return os.write(descriptor, data)
        if self._world.how in {"dies", "torn"}:
            os.write(descriptor, data[: len(data) * 2 // 3 if self._world.how == "torn" else len(data)])
            raise DiedError
        os.write(descriptor, data[: len(data) // 2])
        raise OSError(28, "No space left on device")


def done(value):
    future = Future()
    future.set_result(value)
    return future


def lost():
    future = Future()
    future.set_exception(AlterationUnknownError("the connection was lost"))
    return future


@contextmanager
def failing(world, at, how):
    world.fails_at, world.how, world.writes = at, how, 0
    try:
        yield
    except (DiedError, ClusterError, ConfigError) as error:
        if isinstance(error, ConflictError) or not (at or "nothing to undo" in str(error)):
            raise
    finally:
        world.fails_at = 0


values = st.integers(1, 5).map(float)
asked = st.dictionaries(
    st.sampled_from([ClientQuotaEntity.of(user=user) for user in USERS]),
    st.dictionaries(st.sampled_from([RATE, BPS, PERCENT]), values, max_size=3),
    max_size=5,
)
failures = st.tuples(st.integers(1, 14), st.sampled_from(["dies", "torn", "unsent", "half", "answerless"]))
STRANGER = ClientQuotaEntity.of(user="stranger")


@contextmanager
def disk_of(world):
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(journal, "os", Disk(world))
        patch.setattr(applying, "STEP", 2)
        yield Path(folder) / "quotas.journal"


def target_of(quotas, wanted):
    state = quotas.state()
    after = state.asked
    for entity, values in wanted.items():
        after = altered(after, entity, values, frozenset({RATE, BPS, PERCENT} - set(values)))
    return state, quotas.target(state, after, {})


@settings(max_examples=examples(120, 300), deadline=None)
@given(st.lists(st.tuples(asked, failures), min_size=1, max_size=3), st.lists(failures, max_size=3))
def test_undo_restores_the_state_before_the_run_it_names(runs, failing_undos):
    world = World()
    with disk_of(world) as path:
        check(world, path, runs, failing_undos)


def check(world, path, runs, failing_undos):
    said = []
    quotas = UnitQuotas(world, world)
    world.written[STRANGER] = {"producer_byte_rate": 77.0}

    def applier():
        return Applier(
            quotas, Journal(path, said.append), cluster="one", at="now", say=said.append, clock=ManualClock()
        )

    before = {}
    for wanted, (at, how) in runs:
        state, target = target_of(quotas, wanted)
        was, known = world.state(), run_numbers(path)
        with failing(world, at, how):
            applier().apply(state, target)
        begun = set(run_numbers(path)) - set(known)
        assert begun or world.state() == was, "nothing is done that is not written down before"
        before |= dict.fromkeys(begun, was)

    left, failures = sorted(before), list(failing_undos)
    while left:
        named = []

        def agrees(run, *_, named=named):
            named.append(run.number)
            return True

        was, finished = world.state(), False
        with failing(world, *(failures.pop() if failures else (0, ""))):
            applier().undo(agrees=agrees)
            finished = True
        if named != left[-1:]:  # the one before was done, and died when it had said so
            assert was == before[left.pop()]
            assert named == left[-1:]
        if finished and left:
            assert world.state() == before[left.pop()]
        assert world.written[STRANGER] == {"producer_byte_rate": 77.0}


def run_numbers(path):
    if not path.exists():
        return []
    runs, _ = read_runs(path.read_bytes(), path)
    return [run.number for run in runs if run.undoes is None]
