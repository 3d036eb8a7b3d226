"""The roads to every broker of a cluster, which tells its clients the proxies' addresses."""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from kclient_quota.broker.server import EmbeddedBroker
from kclient_quota.errors import ClusterError
from kclient_quota.testing.apache import ApacheKafka
from kclient_quota.testing.proxy import FaultProxy


class Proxies:
    """A `FaultProxy` in front of every broker of a cluster, whose clients are led through them.

    Example:
        with Proxies(3) as proxies, EmbeddedBroker(brokers=3) as cluster:
            proxies.stand_before(cluster)
            proxies[1].cut()  # broker 1
            Producer({"bootstrap.servers": cluster.bootstrap_servers})

    Apache Kafka has to know the addresses when it starts: `ApacheKafka(brokers=3, advertised_ports=proxies.ports)`.

    Args:
        count: how many brokers there are; they are numbered from 1.
    """

    def __init__(self, count: int = 1) -> None:
        self._all = [FaultProxy(seed=number) for number in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for proxy in self._all:
            proxy.close()

    def __getitem__(self, broker_id: int) -> FaultProxy:
        return self._all[broker_id - 1]

    @property
    def ports(self) -> list[int]:
        """Where the proxies listen, by broker."""
        return [proxy.port for proxy in self._all]

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all proxies."""
        return ",".join(proxy.address for proxy in self._all)

    def stand_before(self, cluster: EmbeddedBroker | ApacheKafka) -> None:
        """Lead to a running cluster; an embedded one tells its clients the proxies' ports from now on.

        Raises:
            ClusterError: it has another number of brokers.
        """
        if isinstance(cluster, ApacheKafka):
            ports = cluster.client_ports
        else:
            ports = [int(address.rpartition(":")[2]) for address in cluster.bootstrap_servers.split(",")]
        if len(ports) != len(self._all):
            raise ClusterError(f"{len(self._all)} proxies cannot stand before {len(ports)} brokers")
        for broker_id, (proxy, port) in enumerate(zip(self._all, ports, strict=True), start=1):
            proxy.lead_to(port)
            if isinstance(cluster, EmbeddedBroker):
                cluster.advertise(broker_id, proxy.port)

    def each(self, action: Callable[[FaultProxy], object]) -> None:
        """Do the same to every proxy."""
        for proxy in self._all:
            action(proxy)
