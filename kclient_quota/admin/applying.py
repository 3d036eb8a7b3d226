"""Carrying out a plan: written down first, in steps, each only onto what the plan was made for; and taking it back."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from kclient_quota.admin.output import entity_text, number
from kclient_quota.admin.results import PartialAlterationError
from kclient_quota.admin.unit_quotas import Changes, QuotaState, Target
from kclient_quota.clock import SYSTEM_CLOCK, Clock
from kclient_quota.errors import ClusterError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kclient_quota.admin.journal import Applied, Journal, Slot
    from kclient_quota.admin.unit_quotas import UnitQuotas
    from kclient_quota.quota.entity import ClientQuotaEntity

STEP = 2_000
"""Entities that are altered between two looks at the cluster."""
_SHOWN = 10
_VISIBLE_MS = 10_000
_PAUSE_MS = 50


class ConflictError(ClusterError):
    """Somebody else changed quotas since the plan was made; theirs are left as they are.

    Attributes:
        slots: what was changed.
    """

    def __init__(self, message: str, slots: Iterable[Slot]) -> None:
        super().__init__(message)
        self.slots = tuple(slots)


class Applier:
    """Applies targets and undoes them, with a journal.

    Args:
        quotas: what is read and altered.
        journal: where it is written down.
        cluster: the cluster's id.
        at: now, as ISO 8601.
        clock: for waiting until what was written can be read.
    """

    def __init__(
        self, quotas: UnitQuotas, journal: Journal, *, cluster: str, at: str, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._quotas = quotas
        self._clock = clock
        self._journal = journal
        self._cluster = cluster
        self._at = at

    def apply(self, state: QuotaState, target: Target, *, undoes: int | None = None) -> int:
        """Make a target true.

        Args:
            state: what the target was worked out for.
            target: what shall be.
            undoes: the run that this takes back.

        Returns:
            how many entities were altered.

        Raises:
            ConflictError: somebody changed one of the quotas meanwhile, or the sources.
            ClusterError: the cluster refused or did not answer; the message says what was done before.
        """
        if not target.changes and target.sources == state.sources:
            return 0
        now = self._quotas.state()
        if now.sources != state.sources:
            raise ConflictError("the values in bps or shares were changed meanwhile; make a new plan", ())
        _check(target.changes, state, now, done=0)
        self._quotas.alter_brokers(target.changes, validate_only=True)
        run = self._journal.begin(state, target, cluster=self._cluster, at=self._at, undoes=undoes)
        self._quotas.keep(state, target)
        done = 0
        for step in _steps(target.changes):
            if done:
                _check(step, state, self._quotas.state(), done=done)
            self._alter(run, step, done)
            done += len(step)
        self._await_visible(target)
        return done

    def undo(self) -> int:
        """Take back the last run that has not been taken back, where nobody has changed anything since.

        Returns:
            how many entities were altered.

        Raises:
            ConfigError: the journal has nothing to undo, or is another cluster's.
            ConflictError: somebody changed one of the quotas since.
            ClusterError: the cluster refused or did not answer.
        """
        run = next((run for run in reversed(self._journal.read()) if not run.is_undone and run.undoes is None), None)
        if run is None:
            raise ConfigError(f"journal {self._journal.path}: it has nothing to undo")
        if run.cluster != self._cluster:
            raise ConfigError(
                f"journal {self._journal.path}: run {run.number} was applied to cluster {run.cluster}, "
                f"this is {self._cluster}"
            )
        state = self._quotas.state()
        return self.apply(state, _undoing(run, state), undoes=run.number)

    def _await_visible(self, target: Target) -> None:
        """Brokers learn from the controller a moment later; wait for the one we ask, but not for ever."""
        end_ms = self._clock.now_ms() + _VISIBLE_MS
        while self._clock.now_ms() < end_ms:
            written = self._quotas.state().written
            if all(
                written.get(entity, {}).get(key) == value
                for entity, ops in target.changes.items()
                for key, value in ops.items()
            ):
                return
            self._clock.sleep_ms(_PAUSE_MS)

    def _alter(self, run: int, step: Changes, done: int) -> None:
        try:
            self._quotas.alter_brokers(step)
        except PartialAlterationError as error:
            self._journal.done(run, error.altered)
            raise ClusterError(
                f"{error}; {done} entities were altered before. Run it again for the rest, "
                f"or `kafka-quotas undo {self._journal.path}` to take everything back",
                error_code=error.error_code,
            ) from error
        self._journal.done(run, step)


def _check(step: Mapping[ClientQuotaEntity, Iterable[str]], state: QuotaState, now: QuotaState, *, done: int) -> None:
    """Refuse to overwrite what is not what the plan was made for."""
    changed = [
        (entity, key)
        for entity, keys in step.items()
        for key in keys
        if now.written.get(entity, {}).get(key) != state.written.get(entity, {}).get(key)
    ]
    if not changed:
        return
    words = [
        f"{entity_text(entity)} {key} was {_value(state, entity, key)} and is {_value(now, entity, key)}"
        for entity, key in changed[:_SHOWN]
    ]
    if len(changed) > _SHOWN:
        words.append(f"and {len(changed) - _SHOWN} more")
    raise ConflictError(
        f"somebody changed quotas meanwhile, nothing of theirs was overwritten: {'; '.join(words)}. "
        f"{done} entities were altered before. Make a new plan",
        changed,
    )


def _undoing(run: Applied, state: QuotaState) -> Target:
    """The target that takes a run back.

    Raises:
        ConflictError: what the run had made is no longer there, nor what was before.
    """
    changes: Changes = {}
    foreign = []
    for (entity, key), before in run.before.items():
        current = state.written.get(entity, {}).get(key)
        if current == before and entity not in run.done:
            continue
        if current not in (before, run.after[entity, key]):
            foreign.append((entity, key))
        changes.setdefault(entity, {})[key] = before
    sources_before, sources_after = run.sources
    if foreign:
        names = ", ".join(f"{entity_text(entity)} {key}" for entity, key in foreign[:_SHOWN])
        raise ConflictError(f"run {run.number} cannot be undone: somebody has changed since {names}", foreign)
    if state.sources not in (sources_before, sources_after):
        raise ConflictError(f"run {run.number} cannot be undone: values in bps or shares were changed since", ())
    written = {entity: dict(values) for entity, values in state.written.items()}
    for entity, ops in changes.items():
        values = {**written.get(entity, {}), **ops}
        written[entity] = {key: value for key, value in values.items() if value is not None}
    return Target(written, sources_before, changes)


def _steps(changes: Changes) -> Iterator[Changes]:
    rest = iter(changes.items())
    while step := dict(islice(rest, STEP)):
        yield step


def _value(state: QuotaState, entity: ClientQuotaEntity, key: str) -> str:
    value = state.written.get(entity, {}).get(key)
    return "not set" if value is None else number(value)
