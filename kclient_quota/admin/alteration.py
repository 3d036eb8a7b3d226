"""AlterClientQuotas in batches, each repeated while the cluster asks for it. Repeating is safe: values are absolute.

Any broker may be asked: it passes the request on to the controller, wherever that has moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kclient_quota.admin.results import AlterationUnknownError
from kclient_quota.errors import ClusterError
from kclient_quota.quota.entity import CLIENT_ID, IP, REQUEST_RATE, REQUEST_RATE_REFUSED, USER, ClientQuotaEntity
from kclient_quota.wire.error_codes import RETRIABLE, ErrorCode, error_name
from kclient_quota.wire.messages import AlterClientQuotasRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kclient_quota.admin.model import ClientQuotaAlteration
    from kclient_quota.clock import Clock
    from kclient_quota.wire.schema import Request

    Settle = Callable[[ClientQuotaEntity, ClusterError | None], None]

# The controller writes a request as one batch of records, of which it takes 10,000; each operation is one of them.
BATCH_OPS = 2_000
_PAUSE_MS = 100
_ATTEMPTS_WITHOUT_ANSWER = 5
_TYPES = {USER, CLIENT_ID, IP}
_NEEDS = "; ALTER_CONFIGS on the cluster is needed"


class Asks(Protocol):
    """What of `ClusterClient` is needed here."""

    def ask(self, request: Request, *, timeout_ms: int) -> Any:
        """Ask any broker."""
        ...


class Alterer:
    """Carries out one call of `alter_client_quotas`.

    Args:
        client: whom to ask.
        clock: for the deadline and the waits that the cluster asks for.
        settle: called once per entity, with None or the reason.
        validate_only: only check.
        timeout_ms: for everything together.
    """

    def __init__(
        self, client: Asks, clock: Clock, settle: Settle, *, validate_only: bool = False, timeout_ms: int
    ) -> None:
        self._client = client
        self._clock = clock
        self._settle = settle
        self._validate_only = validate_only
        self._timeout_ms = timeout_ms
        self._end_ms = clock.now_ms() + timeout_ms

    def alter(self, alterations: Sequence[ClientQuotaAlteration]) -> None:
        """Alter all; what is wrong with one entity does not keep the others from being altered."""
        for batch in _batches(alterations):
            if self._left_ms() > 0:
                self._alter_batch(batch)
            else:
                self._fail(batch, f"were not altered: they were not sent within request_timeout={self._seconds()} s")

    def _alter_batch(self, batch: list[ClientQuotaAlteration]) -> None:
        waiting = {alteration.entity: alteration for alteration in batch}
        silent = 0
        while waiting:
            request = _request(waiting.values(), self._validate_only)
            try:
                response = self._client.ask(request, timeout_ms=self._left_ms())
            except ClusterError as error:
                silent += 1
                if not self._asks_again(error, silent, waiting):
                    return
                continue
            silent = 0
            again = self._read(waiting, response)
            waiting = {entity: waiting[entity] for entity in again}
            if waiting:
                self._wait(waiting, response.throttle_time_ms, again)

    def _asks_again(
        self, error: ClusterError, silent: int, waiting: dict[ClientQuotaEntity, ClientQuotaAlteration]
    ) -> bool:
        """Whether a question without an answer is asked once more; if not, everybody is told why."""
        if error.error_code is not None:
            self._fail(waiting.values(), f"were not altered: {error}", error_code=error.error_code)
            return False
        pause_ms = _PAUSE_MS << (silent - 1)
        if silent >= _ATTEMPTS_WITHOUT_ANSWER or pause_ms >= self._left_ms():
            # what was only to be checked was not altered, answer or none
            unknown = ClusterError if self._validate_only else AlterationUnknownError
            for entity in waiting:
                self._settle(entity, unknown(f"the cluster gave no answer: {error}"))
            return False
        self._clock.sleep_ms(pause_ms)
        return True

    def _read(
        self, waiting: dict[ClientQuotaEntity, ClientQuotaAlteration], response: Any
    ) -> dict[ClientQuotaEntity, int]:
        """Settle what is decided; what the cluster wants to be asked again, with its codes."""
        told = {_entity(entry.entity): entry for entry in response.entries}
        again = {}
        for entity, alteration in waiting.items():
            entry = told.get(entity)
            if entry is None:
                self._settle(entity, ClusterError(f"quotas of {entity}: the broker gave no result for them"))
            elif not entry.error_code:
                self._settle(entity, None)
            elif entry.error_code in RETRIABLE:
                again[entity] = entry.error_code
            else:
                self._settle(entity, _refusal(alteration, entry.error_code, entry.error_message))
        return again

    def _wait(
        self,
        waiting: dict[ClientQuotaEntity, ClientQuotaAlteration],
        throttle_time_ms: int,
        again: dict[ClientQuotaEntity, int],
    ) -> None:
        """Wait as long as the cluster says; if that is too long, tell everybody and leave nobody waiting."""
        pause_ms = max(_PAUSE_MS, throttle_time_ms)
        if pause_ms < self._left_ms():
            self._clock.sleep_ms(pause_ms)
            return
        for entity, code in again.items():
            words = f"the broker asks to wait {pause_ms} ms, longer than request_timeout={self._seconds()} s allows"
            self._settle(
                entity,
                ClusterError(f"quotas of {entity} were not altered: {error_name(code)}: {words}", error_code=code),
            )
        waiting.clear()

    def _fail(self, alterations: Any, words: str, *, error_code: int | None = None) -> None:
        for alteration in alterations:
            self._settle(
                alteration.entity, ClusterError(f"quotas of {alteration.entity} {words}", error_code=error_code)
            )

    def _left_ms(self) -> int:
        return max(0, self._end_ms - self._clock.now_ms())

    def _seconds(self) -> str:
        return f"{self._timeout_ms / 1000:g}"


def _request(alterations: Any, validate_only: bool) -> AlterClientQuotasRequest:
    entries = [
        AlterClientQuotasRequest.EntryData(
            entity=[
                AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name)
                for kind, name in alteration.entity.wire_entries()
            ],
            ops=[
                AlterClientQuotasRequest.OpData(key=op.key, value=op.value or 0.0, remove=op.value is None)
                for op in alteration.ops
            ],
        )
        for alteration in alterations
    ]
    return AlterClientQuotasRequest(entries=entries, validate_only=validate_only)


def _refusal(alteration: ClientQuotaAlteration, code: int, message: str | None) -> ClusterError:
    words = message or ""
    if code == ErrorCode.INVALID_REQUEST and any(op.key == REQUEST_RATE for op in alteration.ops):
        words = REQUEST_RATE_REFUSED
    if code == ErrorCode.INVALID_REQUEST and not _TYPES.issuperset(alteration.entity.entries):
        words += f"; Apache Kafka's types are {', '.join(sorted(_TYPES))}"
    said = ": ".join(part for part in (error_name(code), words) if part)
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        said = said.rstrip(".") + _NEEDS
    return ClusterError(f"quotas of {alteration.entity} were not altered: {said}", error_code=code)


def _entity(parts: Sequence[Any]) -> ClientQuotaEntity:
    return ClientQuotaEntity({part.entity_type: part.entity_name for part in parts})


def _batches(alterations: Sequence[ClientQuotaAlteration]) -> Iterator[list[ClientQuotaAlteration]]:
    batch: list[ClientQuotaAlteration] = []
    ops = 0
    for alteration in alterations:
        if batch and ops + len(alteration.ops) > BATCH_OPS:
            yield batch
            batch, ops = [], 0
        batch.append(alteration)
        ops += len(alteration.ops)
    if batch:
        yield batch
