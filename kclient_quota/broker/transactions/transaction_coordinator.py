"""The coordinator of transactions: who is in one, with which epoch, over which partitions; time and ids handed in.

Follows Kafka 4's `TransactionCoordinator` and `TransactionMetadata`. Ending a transaction is a decision (`Ending`): the
adapter keeps it (`take_changed`), writes the markers that it names, and then calls `complete`.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from types import MappingProxyType

from kclient_quota.broker.groups.timers import Timers
from kclient_quota.wire.error_codes import ErrorCode

MAX_TIMEOUT_MS = 900_000
"""Kafka: `transaction.max.timeout.ms`."""
NO_EPOCH = -1
SECOND_PROTOCOL = 2
"""Kafka's `transaction.version` of clients whose epochs end with their transactions (KIP-890)."""
LAST_EPOCH = 32_767 - 1
MAX_ID_BYTES = 32_767
"""Of a transactional id in UTF-8; the records that tell of it hold no longer one."""

TopicPartition = tuple[str, int]


class TransactionState(StrEnum):
    """Kafka's names of the states."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_State = TransactionState
_IDLE = frozenset({_State.EMPTY, _State.COMPLETE_COMMIT, _State.COMPLETE_ABORT})
_DECIDED = frozenset({_State.PREPARE_COMMIT, _State.PREPARE_ABORT})

VALID_PREVIOUS_STATES: Mapping[TransactionState, frozenset[TransactionState]] = MappingProxyType(
    {
        _State.EMPTY: _IDLE,
        _State.ONGOING: _IDLE | {_State.ONGOING},
        _State.PREPARE_COMMIT: frozenset({_State.ONGOING}),
        _State.PREPARE_ABORT: _IDLE | {_State.ONGOING},
        _State.COMPLETE_COMMIT: frozenset({_State.PREPARE_COMMIT}),
        _State.COMPLETE_ABORT: frozenset({_State.PREPARE_ABORT}),
    },
)


@dataclass(slots=True)
class Transaction:
    """What is known of one transactional id.

    Attributes:
        producer_epoch: of the producer that may write; -1 before the first.
        last_epoch: the epoch before it, if the same producer asked for the new one; else -1.
        partitions: that the running transaction writes to.
        groups: whose offsets it commits.
        former: (producer id, epoch) of the last transaction that bumped the epoch when it ended (KIP-890), or None.
        started_ms: when the transaction began, the last one where none runs; -1 before the first.
        client_version: of the protocol that the client speaks: 2 when epochs end with transactions, else 0.
        updated_ms: when anything of this changed last, as its keeper says.
    """

    transactional_id: str
    producer_id: int
    timeout_ms: int
    producer_epoch: int = NO_EPOCH
    last_epoch: int = NO_EPOCH
    state: TransactionState = TransactionState.EMPTY
    partitions: set[TopicPartition] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    started_ms: int = -1
    former: tuple[int, int] | None = None
    client_version: int = 0
    updated_ms: int = 0

    def transition_to(self, target: TransactionState) -> None:
        """Move to `target` along the table `VALID_PREVIOUS_STATES`; `ValueError` otherwise."""
        if self.state not in VALID_PREVIOUS_STATES[target]:
            raise ValueError(f"transaction {self.transactional_id}: {self.state} may not become {target}")
        self.state = target


@dataclass(frozen=True, slots=True)
class Ending:
    """Markers to write: one into each partition, and the offsets of each group to settle."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: frozenset[TopicPartition]
    groups: frozenset[str]


@dataclass(frozen=True, slots=True)
class Initialized:
    """Answer to InitProducerId."""

    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


class TransactionCoordinator:
    """All transactional ids of a cluster.

    Args:
        new_producer_id: hands out an id nobody has.
        max_timeout_ms: the longest transaction a producer may ask for.

    Attributes:
        transactions: by transactional id.
        max_timeout_ms: may be set at any time.
    """

    def __init__(self, new_producer_id: Callable[[], int], max_timeout_ms: int = MAX_TIMEOUT_MS) -> None:
        self.transactions: dict[str, Transaction] = {}
        self._new_producer_id = new_producer_id
        self.max_timeout_ms = max_timeout_ms
        self._timers: Timers[str] = Timers()
        self._changed: dict[str, None] = {}

    # -- what an adapter keeps

    def take_changed(self) -> list[str]:
        """Transactional ids of which something has changed since the last call."""
        changed, self._changed = list(self._changed), {}
        return changed

    def restore(self, transactional_id: str, transaction: Transaction | None, not_before_ms: int) -> None:
        """Let a transactional id be as it was kept, None for unknown.

        Args:
            transactional_id: the id.
            transaction: as it was; taken over.
            not_before_ms: an ongoing one does not time out before that.
        """
        self._timers.cancel(transactional_id)
        self._changed.pop(transactional_id, None)
        if transaction is None:
            self.transactions.pop(transactional_id, None)
            return
        self.transactions[transactional_id] = transaction
        if transaction.state is TransactionState.ONGOING:
            ends_ms = transaction.started_ms + transaction.timeout_ms
            self._timers.schedule(transactional_id, max(ends_ms, not_before_ms))

    # -- time

    def next_deadline_ms(self) -> int | None:
        """When `expired` next has something to tell."""
        return self._timers.next_deadline_ms()

    def expired(self, now_ms: int, at_most: int = sys.maxsize) -> list[Ending]:
        """Transactions whose time-out has passed: their producers are fenced, and they are to be aborted."""
        endings: list[Ending] = []
        while len(endings) < at_most and (transactional_id := self._timers.pop_due(now_ms)) is not None:
            transaction = self.transactions[transactional_id]
            if transaction.state is TransactionState.ONGOING:
                endings.append(self._fence(transaction))
        return endings

    def forget_idle(self, before_ms: int, at_most: int) -> int:
        """Forget transactional ids that have no transaction, and have not changed since `before_ms`; how many."""
        old = (
            one.transactional_id
            for one in self.transactions.values()
            if one.updated_ms <= before_ms and one.state in _IDLE
        )
        forgotten = list(islice(old, at_most))
        for transactional_id in forgotten:
            del self.transactions[transactional_id]
            self._changed[transactional_id] = None
        return len(forgotten)

    # -- requests

    def fence(self, transactional_id: str) -> Ending | None:
        """To be called before `initialize`: an ongoing transaction of a former producer is to be aborted."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.state is not TransactionState.ONGOING:
            return None
        return self._fence(transaction)

    def initialize(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None = None
    ) -> Initialized:
        """InitProducerId with a transactional id: a new epoch, which fences whoever has an older one.

        Args:
            transactional_id: the id.
            timeout_ms: after which a transaction is aborted.
            expected: (producer id, epoch) that the client has, when it only wants the next epoch (KIP-360).
        """
        if not 0 < len(transactional_id.encode()) <= MAX_ID_BYTES:
            return Initialized(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self.max_timeout_ms:
            return Initialized(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            transaction = Transaction(transactional_id, self._new_producer_id(), timeout_ms)
            self.transactions[transactional_id] = transaction
        elif transaction.state not in _IDLE:
            return Initialized(ErrorCode.CONCURRENT_TRANSACTIONS)
        if not self._next_epoch(transaction, expected):
            return Initialized(ErrorCode.PRODUCER_FENCED)
        transaction.timeout_ms = timeout_ms
        transaction.former, transaction.started_ms = None, -1
        transaction.transition_to(TransactionState.EMPTY)
        self._changed[transactional_id] = None
        return Initialized(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)

    def _next_epoch(self, transaction: Transaction, expected: tuple[int, int] | None) -> bool:
        epoch = transaction.producer_epoch
        if expected is not None and epoch != NO_EPOCH:
            if expected[0] != transaction.producer_id:
                return False
            if expected[1] == transaction.last_epoch and epoch != expected[1]:
                return True  # a repetition: the answer was lost
            if expected[1] != epoch:
                return False
        transaction.last_epoch = NO_EPOCH if expected is None else epoch
        if epoch >= LAST_EPOCH:
            transaction.producer_id = self._new_producer_id()
            transaction.producer_epoch = 0
        else:
            transaction.producer_epoch = epoch + 1
        return True

    def check(self, transactional_id: str, producer_id: int, producer_epoch: int) -> ErrorCode:
        """Whether this producer may act for the transactional id."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if transaction.producer_epoch != producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        if transaction.state in _DECIDED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        now_ms: int,
        *,
        partitions: Iterable[TopicPartition] = (),
        groups: Iterable[str] = (),
        bumps: bool = False,
    ) -> ErrorCode:
        """AddPartitionsToTxn and AddOffsetsToTxn: begins the transaction if none runs; see `end` for `bumps`."""
        error = self.check(transactional_id, producer_id, producer_epoch)
        if error is not ErrorCode.NONE:
            return error
        transaction = self.transactions[transactional_id]
        partitions, groups = set(partitions), set(groups)
        if transaction.state is not TransactionState.ONGOING:
            transaction.started_ms = now_ms
            self._timers.schedule(transactional_id, now_ms + transaction.timeout_ms)
        elif partitions <= transaction.partitions and groups <= transaction.groups:
            return ErrorCode.NONE
        transaction.transition_to(TransactionState.ONGOING)
        transaction.client_version = SECOND_PROTOCOL if bumps else 0
        transaction.partitions |= partitions
        transaction.groups |= groups
        self._changed[transactional_id] = None
        return ErrorCode.NONE

    def has_partition(self, transactional_id: str, partition: TopicPartition) -> bool:
        """Whether the running transaction has this partition (KIP-890: else nothing may be written to it)."""
        transaction = self.transactions.get(transactional_id)
        return (
            transaction is not None
            and transaction.state is TransactionState.ONGOING
            and partition in transaction.partitions
        )

    def has_group(self, transactional_id: str, group_id: str) -> bool:
        """Whether the running transaction has been told that it will commit offsets of this group."""
        transaction = self.transactions.get(transactional_id)
        return transaction is not None and group_id in transaction.groups

    def end(
        self, transactional_id: str, producer_id: int, producer_epoch: int, *, is_commit: bool, bumps: bool = False
    ) -> ErrorCode | Ending:
        """EndTxn: markers to write, NONE when a repetition finds it done, or why not.

        Args:
            transactional_id: whose transaction.
            producer_id: as the client has it.
            producer_epoch: as the client has it.
            is_commit: or abort.
            bumps: the epoch ends with the transaction (KIP-890), also where there is nothing to abort.
        """
        transaction = self.transactions.get(transactional_id)
        done = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
        if bumps and transaction is not None and transaction.former == (producer_id, producer_epoch):
            if transaction.state in _DECIDED and (transaction.state is TransactionState.PREPARE_COMMIT) == is_commit:
                return ErrorCode.CONCURRENT_TRANSACTIONS
            return ErrorCode.NONE if transaction.state is done else ErrorCode.INVALID_TXN_STATE
        error = self.check(transactional_id, producer_id, producer_epoch)
        if error is not ErrorCode.NONE:
            return error
        assert transaction is not None
        if transaction.state is TransactionState.ONGOING or (bumps and not is_commit):
            transaction.client_version = SECOND_PROTOCOL if bumps else 0
            if bumps:
                transaction.former = producer_id, producer_epoch
                transaction.last_epoch = producer_epoch
                transaction.producer_epoch += 1
            return self._prepare(transaction, is_commit=is_commit)
        return ErrorCode.NONE if transaction.state is done and not bumps else ErrorCode.INVALID_TXN_STATE

    # -- how it ends

    def ending_of(self, transactional_id: str) -> Ending | None:
        """What is still to be done of an end that has been decided; None where none has been."""
        transaction = self.transactions.get(transactional_id)
        if transaction is None or transaction.state not in _DECIDED:
            return None
        return Ending(
            transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state is TransactionState.PREPARE_COMMIT,
            frozenset(transaction.partitions),
            frozenset(transaction.groups),
        )

    def marked(self, transactional_id: str, partition: TopicPartition) -> None:
        """A partition has its marker."""
        self.transactions[transactional_id].partitions.discard(partition)

    def complete(self, transactional_id: str) -> None:
        """Everything that the `Ending` has asked for is done."""
        transaction = self.transactions[transactional_id]
        is_commit = transaction.state is TransactionState.PREPARE_COMMIT
        transaction.transition_to(TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT)
        self._changed[transactional_id] = None
        transaction.partitions.clear()
        transaction.groups.clear()
        if transaction.producer_epoch > LAST_EPOCH:
            # the last epoch there is was for the markers
            transaction.producer_id = self._new_producer_id()
            transaction.producer_epoch = 0

    def _fence(self, transaction: Transaction) -> Ending:
        transaction.producer_epoch += 1
        transaction.last_epoch = NO_EPOCH
        return self._prepare(transaction, is_commit=False)

    def _prepare(self, transaction: Transaction, *, is_commit: bool) -> Ending:
        self._timers.cancel(transaction.transactional_id)
        transaction.transition_to(TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT)
        self._changed[transaction.transactional_id] = None
        ending = self.ending_of(transaction.transactional_id)
        assert ending is not None
        return ending
