"""What becomes of alterations: a future per entity, and one for all of them that says which half was done."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Lock
from typing import TYPE_CHECKING

from kclient_quota.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kclient_quota.quota.entity import ClientQuotaEntity

_SHOWN = 10


class AlterationUnknownError(ClusterError):
    """A request was sent and never answered: its alterations may have been done or not. Altering again is harmless."""


class PartialAlterationError(ClusterError):
    """Not every entity was altered; the message names those that were not.

    Attributes:
        altered: what was done.
        failed: what was not done, and why.
        unknown: what was sent without an answer; describe these, or alter them again.
    """

    def __init__(
        self,
        altered: tuple[ClientQuotaEntity, ...],
        failed: Mapping[ClientQuotaEntity, Exception],
        unknown: Mapping[ClientQuotaEntity, Exception],
    ) -> None:
        self.altered = altered
        self.failed = dict(failed)
        self.unknown = dict(unknown)
        codes = {getattr(error, "error_code", None) for error in (*failed.values(), *unknown.values())}
        super().__init__(self._words(), error_code=codes.pop() if len(codes) == 1 else None)

    def _words(self) -> str:
        total = len(self.altered) + len(self.failed) + len(self.unknown)
        parts = [f"{len(self.altered)} of {total} entities were altered"]
        if self.altered and len(self.altered) <= _SHOWN:
            parts[0] += f" ({', '.join(map(str, self.altered))})"
        if self.failed:
            parts.append(f"{len(self.failed)} were not: {_reasons(self.failed)}")
        if self.unknown:
            parts.append(f"of {len(self.unknown)} it is not known: {_reasons(self.unknown)}")
        return "; ".join(parts)


def _reasons(errors: Mapping[ClientQuotaEntity, Exception]) -> str:
    """Each reason once, however many entities met it."""
    by_reason: dict[str, list[ClientQuotaEntity]] = {}
    for entity, error in errors.items():
        by_reason.setdefault(str(error), []).append(entity)
    shown = [
        reason if len(entities) == 1 else f"{_names(entities)}: {reason}"
        for reason, entities in list(by_reason.items())[:_SHOWN]
    ]
    hidden = len(by_reason) - len(shown)
    return "; ".join(shown) + (f"; and {hidden} other reasons" if hidden else "")


def _names(entities: Iterable[ClientQuotaEntity]) -> str:
    names = [str(entity) for entity in entities]
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


class AlterClientQuotasResult(dict["ClientQuotaEntity", "Future[None]"]):
    """A future per entity: None when it was altered, else ClusterError with the broker's code and words."""

    def all(self) -> Future[None]:
        """A future for everything: None when every entity was altered, else `PartialAlterationError`."""
        whole: Future[None] = Future()
        whole.set_running_or_notify_cancel()
        if not self:
            whole.set_result(None)
            return whole
        left, lock = len(self), Lock()

        def one_less(_: Future[None]) -> None:
            nonlocal left
            with lock:
                left -= 1
                is_last = left == 0
            if is_last:
                self._tell(whole)

        for future in self.values():
            future.add_done_callback(one_less)
        return whole

    def _tell(self, whole: Future[None]) -> None:
        errors = {entity: error for entity, future in self.items() if (error := future.exception()) is not None}
        unknown = {entity: error for entity, error in errors.items() if isinstance(error, AlterationUnknownError)}
        failed = {entity: error for entity, error in errors.items() if entity not in unknown}
        if not errors:
            whole.set_result(None)
            return
        altered = tuple(entity for entity in self if entity not in errors)
        whole.set_exception(PartialAlterationError(altered, _exceptions(failed), _exceptions(unknown)))


def _exceptions(errors: Mapping[ClientQuotaEntity, BaseException]) -> dict[ClientQuotaEntity, Exception]:
    return {entity: error for entity, error in errors.items() if isinstance(error, Exception)}
