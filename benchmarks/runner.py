"""Runs scenes on one Apache Kafka: topics, quotas, children, and the figures that need the broker's own counts."""

import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import figures
from benchmarks.cell import measure
from benchmarks.filling import shape
from benchmarks.readback import batch_sizes
from benchmarks.scenes import OURS, WARM_UP_S, BrokerScene, CallScene, ConsumerScene, ProducerScene, Scene
from kclient_quota.testing.apache import ApacheKafka

# bytes a second of quota that may run side by side, so that the clients stay far below what two cores can do
_SIDE_BY_SIDE = 4_000_000
_MOST_CHILDREN = 8
_CHILD_MARGIN_S = 120
_CALL_VARIANTS = ("plain", "ours", "ours-gated")
_NO_LIMIT = 4_000_000_000
_TOLERANCE = 0.01

Say = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """One scene with one client, the n-th time."""

    scene: Scene
    client: str
    number: int

    @property
    def client_id(self) -> str:
        """Unique, because quotas and the broker's counts go by it."""
        return f"{self.scene.name}-{self.client}-{self.number}"


def cells(scenes: Iterable[Scene], clients: Sequence[str], runs: int) -> list[Cell]:
    """Every cell to measure: ours `runs` times, the others once."""
    return [
        Cell(scene, client, number)
        for scene in scenes
        if isinstance(scene, ProducerScene | ConsumerScene)
        for client in clients
        for number in range(1, (runs if client == OURS else 1) + 1)
    ]


def under_quota(cluster: ApacheKafka, todo: Sequence[Cell], say: Say) -> list[dict[str, Any]]:
    """Measures cells side by side, as many at a time as their quotas allow; producers and consumers apart."""
    for scene in {cell.scene for cell in todo if isinstance(cell.scene, ConsumerScene)}:
        _fill(cluster, scene, say)
    results = []
    for group in _groups(todo):
        say(f"measuring {', '.join(cell.client_id for cell in group)}")
        with ThreadPoolExecutor(len(group)) as pool:
            results += list(pool.map(lambda cell: _measure(cluster, cell), group))
    return results


def calls(cluster: ApacheKafka, scene: CallScene, clients: Sequence[str], say: Say) -> dict[str, Any]:
    """Calls a second of each variant, taken in turns so that a busy moment hits all of them."""
    cluster.create_topic(scene.name)
    if scene.call in {"consume", "poll"}:
        _call_rates(cluster, replace(scene, call="produce", repeats=scene.repeats + 1), "plain", "benchmark-filler")
    variants = [variant for variant in _CALL_VARIANTS if _client_of(variant) in clients]
    rates: dict[str, dict[str, list[float]]] = {variant: {} for variant in variants}
    for turn in range(scene.rounds):
        for variant in variants:
            client_id = f"{scene.name}-{variant}-{turn}"
            if variant == "ours-gated":
                cluster.set_quota(client_id=client_id, producer_byte_rate=_NO_LIMIT, consumer_byte_rate=_NO_LIMIT)
            for key, found in _call_rates(cluster, scene, _client_of(variant), client_id).items():
                rates[variant].setdefault(key, []).extend(found)
    say(f"measured {scene.name}")
    return {"scene": scene.name, "rates": rates}


def _client_of(variant: str) -> str:
    return variant.split("-", maxsplit=1)[0]


def _call_rates(cluster: ApacheKafka, scene: CallScene, client: str, client_id: str) -> dict[str, list[float]]:
    spec: dict[str, Any] = {"client": client, "client_id": client_id, "call": scene.call, "messages": scene.messages}
    spec |= {"bootstrap": cluster.bootstrap_servers, "topic": scene.name, "repeats": scene.repeats}
    result = measure("calls", spec, timeout_s=300)
    return {key: rates for key, rates in result.items() if key.endswith(("_per_s", "_per_cpu_s"))}


def broker(scene: BrokerScene, say: Say) -> dict[str, Any]:
    """Start-up, throughput and CPU of the embedded broker beside librdkafka's mock."""
    result = measure("broker_runs", {"messages": scene.messages, "rounds": scene.rounds}, timeout_s=900)
    say(f"measured {scene.name}")
    return {"scene": scene.name, **result}


def _groups(todo: Sequence[Cell]) -> list[list[Cell]]:
    groups: list[list[Cell]] = []
    load = 0
    for cell in todo:
        assert isinstance(cell.scene, ProducerScene | ConsumerScene)
        fresh = not groups or type(groups[-1][0].scene) is not type(cell.scene)
        if fresh or len(groups[-1]) >= _MOST_CHILDREN or load + cell.scene.quota > _SIDE_BY_SIDE:
            groups.append([])
            load = 0
        groups[-1].append(cell)
        load += cell.scene.quota
    return groups


def _measure(cluster: ApacheKafka, cell: Cell) -> dict[str, Any]:
    assert isinstance(cell.scene, ProducerScene | ConsumerScene)
    row = {"scene": cell.scene.name, "client": cell.client, "run": cell.number, "quota": cell.scene.quota}
    try:
        if isinstance(cell.scene, ProducerScene):
            return {**row, "kind": "producers", **_produce(cluster, cell, cell.scene)}
        return {**row, "kind": "consumers", **_consume(cluster, cell, cell.scene)}
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        # one client that fails must not take the others' figures with it
        return {**row, "kind": "failures", "error": str(error)}


def _produce(cluster: ApacheKafka, cell: Cell, scene: ProducerScene) -> dict[str, Any]:
    cluster.create_topic(cell.client_id)
    cluster.set_quota(client_id=cell.client_id, producer_byte_rate=scene.quota)
    spec: dict[str, Any] = {"client": cell.client, "bootstrap": cluster.bootstrap_servers, "topic": cell.client_id}
    spec |= {"client_id": cell.client_id, "messages": scene.messages, "seconds": scene.seconds}
    spec |= {"size": scene.size, "wait_s": scene.wait_s}
    expected_s = scene.seconds + scene.messages * scene.size / scene.quota
    result = measure("producing", spec, timeout_s=expected_s + scene.wait_s + _CHILD_MARGIN_S)
    samples = figures.of_client(cluster.byte_samples(), "Produce", cell.client_id)
    rate = figures.producer_rate(samples, result["begin_ms"])
    compare = {"topic": cell.client_id, "failed_ids": result.pop("failed_ids"), "handed_over": result["handed_over"]}
    stored = measure("readback", {"bootstrap": cluster.bootstrap_servers, **compare}, timeout_s=300)
    recorded = sum(value for _, value in samples)
    share = stored["in_log"] * scene.size / recorded if recorded else 0.0
    del stored["cpu_s"], stored["stderr"]
    return {
        **result,
        **stored,
        "utilisation": None if rate is None else rate / scene.quota,
        "payload_share": None if rate is None else rate * share / scene.quota,
        "recorded": figures.course(samples, result["begin_ms"]),
    }


def _consume(cluster: ApacheKafka, cell: Cell, scene: ConsumerScene) -> dict[str, Any]:
    cluster.set_quota(client_id=cell.client_id, consumer_byte_rate=scene.quota)
    spec: dict[str, Any] = {"client": cell.client, "bootstrap": cluster.bootstrap_servers, "topic": _log_of(scene)}
    spec |= {"client_id": cell.client_id, "seconds": scene.seconds}
    result = measure("consuming", spec, timeout_s=scene.seconds + _CHILD_MARGIN_S + 180)
    samples = figures.of_client(cluster.byte_samples(), "Fetch", cell.client_id)
    rate = figures.consumer_rate(samples, result["begin_ms"], result["end_ms"])
    steady_s = (result["end_ms"] - result["begin_ms"]) / 1000 - WARM_UP_S
    return {
        **result,
        "utilisation": rate / scene.quota,
        "payload_share": result["steady_payload"] / steady_s / scene.quota,
        "recorded": figures.course(samples, result["begin_ms"]),
    }


def _log_of(scene: ConsumerScene) -> str:
    return f"log-{scene.batch_bytes}-{scene.quota}"


def _fill(cluster: ApacheKafka, scene: ConsumerScene, say: Say) -> None:
    """Writes more than the quota lets through: the burst of ten seconds and half as much again as the whole run."""
    topic = _log_of(scene)
    cluster.create_topic(topic, scene.partitions)
    batches = int(scene.quota * (scene.seconds * 1.5 + 20) / scene.batch_bytes / scene.partitions) + 4
    spec: dict[str, Any] = {"bootstrap": cluster.bootstrap_servers, "topic": topic, "batches": batches}
    spec["partitions"] = scene.partitions
    measure("filling", {**spec, "batch_bytes": scene.batch_bytes}, timeout_s=600)
    sizes = [
        size
        for partition in range(scene.partitions)
        for size in batch_sizes(cluster.partition_folder(1, topic, partition))
    ]
    wrong = [size for size in sizes if abs(size / scene.batch_bytes - 1) > _TOLERANCE]
    if len(sizes) != batches * scene.partitions or wrong:
        raise RuntimeError(
            f"{topic}: wanted {batches} batches of {scene.batch_bytes} bytes a partition, got {sizes[:9]}…"
        )
    say(f"filled {topic}: {len(sizes)} batches of {sizes[0]} bytes ({shape(scene.batch_bytes)[0]} messages)")
