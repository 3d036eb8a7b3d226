"""What becomes of alterations: a future per entity, and one for all of them that says which half was done."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Lock
from typing import TYPE_CHECKING

from kclient_quota.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kclient_quota.quota.entity import ClientQuotaEntity

_SHOWN = 10
_OF = "quotas of "
"""How a reason begins that names its entity."""


class AlterationUnknownError(ClusterError):
    """A request was sent and never answered: its alterations may have been done or not. Altering again is harmless."""


class PartialAlterationError(ClusterError):
    """Not every entity was altered, or could be; the message names those that were not.

    Attributes:
        altered: what was done; nothing where it was only checked.
        failed: what was not done, and why.
        unknown: what was sent without an answer; describe these, or alter them again.
    """

    def __init__(
        self,
        altered: tuple[ClientQuotaEntity, ...],
        failed: Mapping[ClientQuotaEntity, Exception],
        unknown: Mapping[ClientQuotaEntity, Exception],
        *,
        validate_only: bool = False,
    ) -> None:
        self.altered = () if validate_only else altered
        self.failed = dict(failed)
        self.unknown = dict(unknown)
        codes = {getattr(error, "error_code", None) for error in (*failed.values(), *unknown.values())}
        total = len(altered) + len(failed) + len(unknown)
        words = self.words_of(whole=total)
        if validate_only:
            against = {**failed, **unknown}
            words = (
                f"nothing was altered: {len(against)} of {total} entities did not pass the check: {_reasons(against)}"
            )
        super().__init__(words, error_code=codes.pop() if len(codes) == 1 else None)

    def words_of(self, *, before: int = 0, whole: int) -> str:
        """The message of a step of longer work.

        Args:
            before: how many entities earlier steps have altered.
            whole: how many there are, with those of later steps, which nobody has touched.
        """
        altered = before + len(self.altered)
        parts = [f"{altered} of {whole} entities were altered"]
        if self.altered and altered <= _SHOWN and not before:
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
        by_reason.setdefault(str(error).removeprefix(f"{_OF}{entity} "), []).append(entity)
    shown = [_reason(why, entities, errors) for why, entities in list(by_reason.items())[:_SHOWN]]
    hidden = len(by_reason) - len(shown)
    return "; ".join(shown) + (f"; and {hidden} other reasons" if hidden else "")


def _reason(why: str, entities: Sequence[ClientQuotaEntity], errors: Mapping[ClientQuotaEntity, Exception]) -> str:
    if len(entities) == 1:
        return str(errors[entities[0]])
    is_of_them = str(errors[entities[0]]) != why
    return f"{_OF}{_names(entities)} {why}" if is_of_them else f"{_names(entities)}: {why}"


def _names(entities: Iterable[ClientQuotaEntity]) -> str:
    names = [str(entity) for entity in entities]
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


class AlterClientQuotasResult(dict["ClientQuotaEntity", "Future[None]"]):
    """A future per entity: None when it was altered, else ClusterError with the broker's code and words.

    Attributes:
        validate_only: whether it is only checked.
    """

    validate_only = False

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
        error = PartialAlterationError(
            altered, _exceptions(failed), _exceptions(unknown), validate_only=self.validate_only
        )
        whole.set_exception(error)


def _exceptions(errors: Mapping[ClientQuotaEntity, BaseException]) -> dict[ClientQuotaEntity, Exception]:
    return {entity: error for entity, error in errors.items() if isinstance(error, Exception)}
