"""Carrying out a plan: written down first, in steps, each only onto what the plan was made for; and taking it back."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from kclient_quota.admin.output import entity_text, number
from kclient_quota.admin.results import PartialAlterationError
from kclient_quota.admin.sources import SourceKey, put, records_of
from kclient_quota.admin.unit_quotas import Changes, QuotaState, Target
from kclient_quota.admin.units import QuotaUnit, Sources
from kclient_quota.clock import SYSTEM_CLOCK, Clock
from kclient_quota.errors import ClusterError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kclient_quota.admin.journal import Applied, Journal, OpenJournal, Slot
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
        say: told in one sentence what is worth knowing though it is no error.
        tell: told after every step how many entities of how many are altered.
        clock: for waiting until what was written can be read.
        file: the name of the file of quotas: it is written down, and its runs alone are undone.
    """

    def __init__(
        self,
        quotas: UnitQuotas,
        journal: Journal,
        *,
        cluster: str,
        at: str,
        say: Callable[[str], None],
        tell: Callable[[int, int], None] | None = None,
        clock: Clock = SYSTEM_CLOCK,
        file: str | None = None,
    ) -> None:
        self._file = file
        self._quotas = quotas
        self._clock = clock
        self._journal = journal
        self._cluster = cluster
        self._at = at
        self._say = say
        self._tell = tell

    def apply(self, state: QuotaState, target: Target) -> int:
        """Make a target true.

        Args:
            state: what the target was worked out for.
            target: what shall be.

        Returns:
            how many entities were altered.

        Raises:
            ConfigError: another run writes to the journal, or it cannot be written.
            ConflictError: somebody changed one of the quotas meanwhile, or the sources.
            ClusterError: the cluster refused or did not answer; the message says what was done before.
        """
        if not target.changes and target.sources == state.sources:
            return 0
        self._quotas.check_store(state, target)
        self._quotas.alter_brokers(target.changes, validate_only=True)
        with self._journal.opened() as book:
            now = self._quotas.state()
            if now.sources != state.sources:
                raise ConflictError("the values in bps or shares were changed meanwhile; make a new plan", ())
            _check(target.changes, state, now, done=0)
            remedy = f"Run it again for the rest, or `kafka-quotas undo {self._journal.path}` to take everything back"
            return self._carry_out(book, state, target, remedy)

    def undo(self, wanted: int | None = None, *, agrees: Callable[[Applied, QuotaState, Target], bool]) -> int | None:
        """Take back a run where nobody has changed anything since; what an earlier undo left undone is done now.

        A run counts as taken back only once all of it is: whatever fails, the next undo names the same run.

        Args:
            wanted: the run's number; by default the last one of this cluster and the file that was not taken back.
            agrees: shown the run, what there is and what there will be; nothing is done unless it returns True.

        Returns:
            how many entities were altered; None if `agrees` did not.

        Raises:
            ConfigError: the journal has nothing to undo on this cluster.
            ConflictError: somebody changed one of the quotas since.
            ClusterError: the cluster refused or did not answer.
        """
        with self._journal.opened(create=False) as book:
            run = self._to_undo(book.runs, wanted)
            state = self._quotas.state()
            target = _undoing(run, state)
            self._quotas.check_store(state, target)
            if not agrees(run, state, target):
                return None
            remedy = f"`kafka-quotas undo {self._journal.path}` goes on with run {run.number}"
            return self._carry_out(book, state, target, remedy, undoes=run.number)

    def _to_undo(self, runs: list[Applied], wanted: int | None) -> Applied:
        where = f"journal {self._journal.path}"
        mine = [run for run in runs if run.cluster == self._cluster and run.undoes is None]
        standing = [run for run in mine if not run.is_undone]
        if wanted is None:
            found = [run for run in standing if self._file is None or run.file in {None, self._file}]
        else:
            found = [run for run in standing if run.number == wanted]
        if found:
            return found[-1]
        if wanted is None and standing:
            number = standing[-1].number
            raise ConfigError(
                f"{where}: it has nothing to undo of {self._file}; run {number}, the last that stands, is of "
                f"{standing[-1].file}: --run {number} takes that back"
            )
        if wanted is not None:
            taken_back = next((run.undoes for run in runs if run.number == wanted), None)
            if taken_back is not None:
                raise ConfigError(
                    f"{where}: run {wanted} took run {taken_back} back; to have that again, apply its file"
                )
            undone = any(run.number == wanted for run in mine)
            raise ConfigError(f"{where}: run {wanted} {'is undone already' if undone else 'is none of this cluster'}")
        others = [run for run in runs if run.cluster != self._cluster]
        if others:
            raise ConfigError(
                f"{where}: it has nothing to undo here: run {others[-1].number} was applied to cluster "
                f"{others[-1].cluster}, this is {self._cluster}"
            )
        raise ConfigError(f"{where}: it has nothing to undo")

    def _carry_out(
        self, book: OpenJournal, state: QuotaState, target: Target, remedy: str, *, undoes: int | None = None
    ) -> int:
        run = book.begin(state, target, cluster=self._cluster, at=self._at, undoes=undoes, file=self._file)
        whole = len(target.changes)
        done = sent = 0
        try:
            self._quotas.keep(state, target)
            for step in _steps(target.changes):
                if done:
                    _check(step, state, self._quotas.state(), done=done)
                book.attempt(run, done + len(step))
                sent += len(step)
                self._quotas.alter_brokers(step)
                done = sent
                if self._tell is not None:
                    self._tell(done, whole)
            book.end(run)
            self._await_visible(target)
        except ConflictError:
            raise
        except PartialAlterationError as error:
            words = error.words_of(before=done, whole=whole)
            raise ClusterError(f"{words}. {remedy}", error_code=error.error_code) from error
        except (ClusterError, ConfigError) as error:
            code = getattr(error, "error_code", None)
            words = f"{done} of {whole} entities were altered; then it went no further: {error}"
            raise ClusterError(f"{words}. {remedy}", error_code=code) from error
        except KeyboardInterrupt:
            unknown = f", of {sent - done} it is not known" if sent > done else ""
            self._say(f"interrupted: {done} of {whole} entities were altered{unknown}. {remedy}")
            raise
        return done

    def _await_visible(self, target: Target) -> None:
        """Brokers learn from the controller a moment later; wait for the one we ask, but not for ever."""
        end_ms = self._clock.now_ms() + _VISIBLE_MS
        try:
            while self._clock.now_ms() < end_ms:
                written = self._quotas.state().written
                if all(
                    written.get(entity, {}).get(key) == value
                    for entity, ops in target.changes.items()
                    for key, value in ops.items()
                ):
                    return
                self._clock.sleep_ms(_PAUSE_MS)
        except ClusterError as error:
            self._say(f"everything was altered, but it could not be looked at afterwards: {error}")
            return
        self._say(
            f"everything was altered, but after {_VISIBLE_MS // 1000} s the broker that we ask does not show all of "
            "it: it is late, or somebody has changed something since; `kafka-quotas plan` says what"
        )


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
    """The target that takes a run back: of what it may have altered, everything as it was; nothing else is touched.

    What it may have altered is written even where it looks like before: brokers learn of an alteration late.

    Raises:
        ConflictError: something of it is neither what the run had made nor what was before.
    """
    attempted = run.attempted_entities()
    changes: Changes = {}
    foreign = []
    for (entity, key), sides in run.changes.items():
        if entity not in attempted:
            continue
        if state.written.get(entity, {}).get(key) not in sides:
            foreign.append((entity, key))
        changes.setdefault(entity, {})[key] = sides[0]
    if foreign:
        names = ", ".join(f"{entity_text(entity)} {key}" for entity, key in foreign[:_SHOWN])
        raise ConflictError(f"run {run.number} cannot be undone: somebody has changed since {names}", foreign)
    kept = records_of(state.sources)
    sources = Sources()
    for source, sides in run.sources.items():
        if kept.get(source) not in sides:
            raise ConflictError(
                f"run {run.number} cannot be undone: somebody has changed since {_source_text(source)}", ()
            )
        kept.pop(source, None)
        if sides[0] is not None:
            kept[source] = sides[0]
    for source, value in kept.items():
        put(sources, source, value)
    written = {entity: dict(values) for entity, values in state.written.items()}
    for entity, ops in changes.items():
        values = {**written.get(entity, {}), **ops}
        written[entity] = {key: value for key, value in values.items() if value is not None}
    return Target(written, sources, changes)


def _source_text(source: SourceKey) -> str:
    if source.entity is None:
        return f"the capacity of {source.name}"
    return f"{entity_text(source.entity)} {QuotaUnit(source.name, source.unit)}"


def _steps(changes: Changes) -> Iterator[Changes]:
    rest = iter(changes.items())
    while step := dict(islice(rest, STEP)):
        yield step


def _value(state: QuotaState, entity: ClientQuotaEntity, key: str) -> str:
    value = state.written.get(entity, {}).get(key)
    return "not set" if value is None else number(value)
