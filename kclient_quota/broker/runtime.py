"""A cluster at run time, on its loop: nodes, their listeners and connections."""

import asyncio
import random
import socket
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from kclient_telemetry.receiver.exposition import Family, page

from kclient_quota.broker.cluster_state import BROKER, BrokerInfo, ClusterState, QuotaEntity
from kclient_quota.broker.groups.group_service import GroupService
from kclient_quota.broker.handlers import REGISTRY
from kclient_quota.broker.log.partition_log import PartitionLog
from kclient_quota.broker.log.segments import SegmentPool
from kclient_quota.broker.log_cleaner import LogCleaner
from kclient_quota.broker.metrics import broker_metrics, families_of
from kclient_quota.broker.network.acceptor import Acceptor
from kclient_quota.broker.network.connection import Connection
from kclient_quota.broker.network.endpoints import ListenerSpec, told_host
from kclient_quota.broker.network.listener import Listener, bind
from kclient_quota.broker.network.loop_scheduler import LoopScheduler
from kclient_quota.broker.network.metrics_page import serve_metrics
from kclient_quota.broker.network.session import ReceiveBuffer
from kclient_quota.broker.request.context import Services
from kclient_quota.broker.request.controls import Controls, SeenRequest
from kclient_quota.broker.request.enforcement import Enforcement, QuotaSettings
from kclient_quota.broker.request.faults import Faults
from kclient_quota.broker.request.node import MAX_CONNECTIONS, REQUESTS_KEPT, Limits, Node
from kclient_quota.broker.request.on_disk import on_disk
from kclient_quota.broker.request.promise import Drive
from kclient_quota.broker.shares.share_service import ShareService
from kclient_quota.broker.storage.cluster_storage import ClusterStorage, no_room
from kclient_quota.broker.transactions.transaction_service import TransactionService
from kclient_quota.errors import ClusterError

_TURNS = 4
_LONGEST_END_S = 10
_LOOKS_PER_IDLE = 10


class Runtime:
    """Everything of a cluster that lives on the loop. Only `__init__` may be called from another thread.

    Args:
        broker_ids: node ids.
        hosts: address to listen on, and what clients are told, None for the same.
        listeners: ways into every broker.
        settings: how quotas are measured.
        limits: what clients may cost.
    """

    def __init__(
        self,
        broker_ids: Iterable[int],
        hosts: tuple[str, str | None],
        listeners: Iterable[ListenerSpec],
        settings: QuotaSettings,
        limits: Limits,
    ) -> None:
        self._host = hosts[0]
        told = told_host(*hosts)
        self._listeners = list(listeners)
        self._settings = settings
        self._limits = limits
        self.pool = SegmentPool()
        self.cluster = ClusterState(
            cluster_id=uuid.uuid4().hex[:22],
            brokers=[BrokerInfo(broker_id, told) for broker_id in broker_ids],
            new_topic_id=uuid.uuid4,
            new_log=lambda config: PartitionLog(self.pool, config),
        )
        self.cluster.on_quota.append(self._follow_quota)
        self.cluster.on_config.append(self._follow_limits)
        self.controls = Controls()
        chance = random.Random(0)  # noqa: S311 - to be repeated, not to be secret
        self.faults = Faults(chance.random, chance.seed)
        self.requests: deque[SeenRequest] = deque(maxlen=REQUESTS_KEPT)
        self.nodes: dict[int, Node] = {}
        self.services: Services | None = None
        self._scheduler: LoopScheduler | None = None
        self._storage: ClusterStorage | None = None
        self._metrics_listener: Listener | None = None
        self._receive = ReceiveBuffer()
        self._connections: dict[Connection, int] = {}
        self._all_gone: asyncio.Event | None = None
        self._listening: dict[int, list[Listener]] = {}
        self._bound: dict[tuple[int, str], int] = {}
        self._sockets = {broker_id: self._bind(broker_id) for broker_id in self.cluster.brokers}

    # -- sockets

    def _bind(self, broker_id: int) -> list[socket.socket]:
        """Bound before anything runs, so that every address is known from the first Metadata on."""
        bound: list[socket.socket] = []
        info = self.cluster.brokers[broker_id]
        try:
            for listener in self._listeners:
                wanted = self._bound.get((broker_id, listener.name)) or listener.ports.get(broker_id, 0)
                one = bind(self._host, wanted)
                bound.append(one)
                port = self._bound[broker_id, listener.name] = one.getsockname()[1]
                info.ports.setdefault(listener.name, port)
        except OSError:
            for one in bound:
                one.close()
            raise
        return bound

    def close_sockets(self) -> None:
        """Let go of what was bound and not yet served."""
        for sockets in self._sockets.values():
            for one in sockets:
                one.close()
        self._sockets.clear()

    # -- brokers

    async def start(self, scheduler: LoopScheduler, storage: ClusterStorage | None) -> None:
        """Read back what is stored, if anything is; nobody is answered before `serve`."""
        self._scheduler = scheduler
        self.services = Services(self.cluster, scheduler)
        groups, transactions = self.services.get(GroupService), self.services.get(TransactionService)
        transactions.offsets = groups.offsets
        if storage is not None:
            self._storage = storage
            try:
                storage.restore(self.cluster, groups, self.services.get(ShareService), transactions)
            except OSError as error:
                raise no_room(error) from error
            storage.begin_syncs(self.cluster, scheduler)
        shares = self.services.get(ShareService)
        for told in (
            groups.topic.records,
            transactions.records,
            shares.telling.offsets_topic,
            shares.state_topic.records,
        ):
            told.is_told = True
        shares.tell_all()
        transactions.resume()
        LogCleaner(self.cluster, scheduler).look()

    def serve(self) -> None:
        """Answer on every broker."""
        scheduler = self._scheduler
        assert scheduler is not None
        for broker_id in self.cluster.brokers:
            self._serve(broker_id)
        if self._limits.idle_ms > 0:
            scheduler.call_at(scheduler.now_ms() + max(1, self._limits.idle_ms // _LOOKS_PER_IDLE), self._close_idle)

    def _serve(self, broker_id: int) -> None:
        assert self.services is not None
        assert self._scheduler is not None
        enforcement = Enforcement(self._settings, time.thread_time_ns)
        for entity, values in self.cluster.quotas.items():
            for key, value in values.items():
                enforcement.update_quota(entity, key, value)
        info = self.cluster.brokers[broker_id]
        node = Node(
            info,
            self.cluster,
            self.services,
            self._scheduler,
            enforcement,
            self.controls,
            REGISTRY,
            self.requests,
            self._limits,
            self.faults,
        )
        self.nodes[broker_id] = node
        sockets = self._sockets.pop(broker_id)
        self._listening[broker_id] = [
            Listener(one, self._connection_factory(node, spec), spec.tls)
            for spec, one in zip(self._listeners, sockets, strict=True)
        ]

    def _connection_factory(self, node: Node, spec: ListenerSpec) -> Callable[[], Connection]:
        acceptor = Acceptor(node, spec.name)

        def opened(connection: Connection) -> None:
            self._connections[connection] = node.info.id
            acceptor.arrived(connection)

        return lambda: Connection(
            node,
            spec.name,
            self._receive,
            opened,
            self._forget,
            needs_authentication=spec.needs_authentication,
        )

    def _forget(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        if self._all_gone is not None and not self._connections:
            self._all_gone.set()

    def _close_idle(self) -> None:
        assert self._scheduler is not None
        now_ms, idle_ms = self._scheduler.now_ms(), self._limits.idle_ms
        for connection in list(self._connections):
            connection.close_if_idle(now_ms, idle_ms)
        self._scheduler.call_at(now_ms + max(1, idle_ms // _LOOKS_PER_IDLE), self._close_idle)

    def stop_broker(self, broker_id: int) -> None:
        """Close its listeners and connections; what it led goes to other replicas that are up."""
        for listener in self._listening.pop(broker_id, []):
            listener.close()
        self.kill_connections(broker_id=broker_id)
        self.cluster.set_broker_up(broker_id, is_up=False)

    def start_broker(self, broker_id: int) -> None:
        """Serve again, on the ports it had, with its quotas measured anew; nothing if it is up."""
        if broker_id in self._listening:
            return
        self._sockets[broker_id] = self._bind(broker_id)
        self.cluster.set_broker_up(broker_id, is_up=True)
        self._serve(broker_id)

    def serve_metrics(self, port: int, more: Callable[[], list[Family]]) -> int:
        """Serve a Prometheus page; the port, if 0 was asked for.

        Args:
            port: to listen on.
            more: what is on the page besides brokers' metrics.

        Raises:
            OSError: it cannot be listened on.
            MissingExtraError: prometheus_client is not installed.
        """
        page(())  # so that a missing library is told now, not to the first scraper

        async def answer(accept: str) -> tuple[bytes, str]:
            own = families_of(broker_metrics(self.nodes.values()))
            # what clients have pushed may be very much; nobody waits for that to become a page
            return await asyncio.to_thread(lambda: page([*own, *more()], accept))

        self._metrics_listener = serve_metrics(self._host, port, answer)
        return self._metrics_listener.port

    async def stop(self) -> None:
        """Close everything and forget all records."""
        self._stop_listening()
        await _turns()
        self.kill_connections()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.kill_connections()
        await _turns()
        await self._ended()
        if self._scheduler is not None and self.services is not None:
            self.services.get(GroupService).topic.tell_rest()
            # what is done in turns would go on in files that are closed, and may be another broker's by then
            self._scheduler.close()
        for partition in self.cluster.partitions():
            partition.log.close()
        if self._storage is not None:
            self._storage.close()

    async def _ended(self) -> None:
        """Let long requests whose clients are gone come to their end: what has begun is not left half done."""
        self._all_gone = asyncio.Event()
        if self._connections:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_gone.wait(), _LONGEST_END_S)

    async def on_disk(self) -> None:
        """Wait until the disk itself has all that has been changed, where that is wanted.

        Raises:
            ClusterError: it has refused.
        """
        if self.cluster.on_disk is None:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        Drive(on_disk(self.cluster), partial(_hand_over, future), partial(_hand_over, future, None))
        try:
            await future
        except OSError as error:
            raise ClusterError(f"what has changed is not on the disk: {error}") from error

    def _stop_listening(self) -> None:
        self.close_sockets()
        if self._metrics_listener is not None:
            self._metrics_listener.close()
        for broker_id in list(self._listening):
            for listener in self._listening.pop(broker_id):
                listener.close()

    # -- connections

    def kill_connections(self, client_id: str | None = None, broker_id: int | None = None) -> int:
        """Cut connections without a word.

        Args:
            client_id: only those whose last request named it.
            broker_id: only those to this broker.

        Returns:
            How many there were.
        """
        doomed = [
            connection
            for connection, node_id in self._connections.items()
            if client_id in {None, connection.state.client_id} and broker_id in {None, node_id}
            if not connection.is_gone
        ]
        for connection in doomed:
            connection.abort()
        return len(doomed)

    def _follow_limits(self, resource_type: int, _: str) -> None:
        """Close those of too many connections that were silent for the longest, as Kafka; or let in who waits."""
        for node in self.nodes.values() if resource_type == BROKER else ():
            excess = node.traffic.connections - node.connection_limit(MAX_CONNECTIONS)
            if excess > 0:
                served = [one for one in self._connections if one.node is node and one.is_admitted and not one.is_gone]
                for connection in sorted(served, key=lambda one: one.active_ms)[:excess]:
                    connection.abort()
            node.look_for_room()

    # -- quotas

    def _follow_quota(self, entity: QuotaEntity, key: str, value: float | None) -> None:
        for node in self.nodes.values():
            node.enforcement.update_quota(entity, key, value)


def _hand_over(future: asyncio.Future[None], _: None, error: Exception | None = None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


async def _turns() -> None:
    """Let the loop finish what was accepted or aborted just before."""
    for _ in range(_TURNS):
        await asyncio.sleep(0)
