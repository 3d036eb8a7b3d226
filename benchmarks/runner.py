"""Runs scenes on one Apache Kafka: topics, quotas, children, and the figures that need the broker's own counts."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks import cell as children
from benchmarks import figures, go_peer, java_peer
from benchmarks.cell import measure
from benchmarks.filling import shape
from benchmarks.payloads import mean_size
from benchmarks.readback import batch_sizes
from benchmarks.scenes import (
    OURS,
    TUNED,
    WARM_UP_S,
    BrokerScene,
    CallScene,
    ConsumerScene,
    LoopScene,
    ProducerScene,
    QuotaScene,
    Scene,
)
from kclient_quota.testing.apache import ApacheKafka

# bytes a second that may run side by side, so that the clients stay far below what two cores can do
_SIDE_BY_SIDE = 4_000_000
_COMPRESSED = 6
"""Times as small JSON orders become; what a client works at are the messages, not what is sent of them."""
_MOST_CHILDREN = 8
_CHILD_MARGIN_S = 120
_NO_LIMIT = 4_000_000_000
_TOLERANCE = 0.01
_LOOP_BATCH_BYTES = 16_000
# a broker that makes the logs of a dozen topics at once is late with quotas
_one_by_one = threading.Lock()

Say = Callable[[str], None]
Keep = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Cell:
    """One scene with one client, the n-th time."""

    scene: QuotaScene
    client: str
    number: int

    @property
    def client_id(self) -> str:
        """Unique, because quotas and the broker's counts go by it."""
        return f"{self.scene.name}-{self.client}-{self.number}"

    @property
    def expected_s(self) -> float:
        """About how long it takes; who sends for some time has clients that take twice as long to deliver it."""
        if isinstance(self.scene, ProducerScene):
            return self.scene.seconds * 3 + self.scene.messages * self.scene.size / self.scene.quota
        return self.scene.seconds

    @property
    def work(self) -> int:
        """Bytes of messages a second that the quota lets through."""
        is_compressed = isinstance(self.scene, ProducerScene) and self.scene.compression != "none"
        return self.scene.quota * (_COMPRESSED if is_compressed else 1)


def cells(scenes: Iterable[Scene], clients: Sequence[str], runs: int) -> list[Cell]:
    """Every cell to measure: ours `runs` times, the others once."""
    return [
        Cell(scene, client, number)
        for scene in scenes
        if isinstance(scene, QuotaScene)
        for client in clients
        if client not in TUNED or isinstance(scene, ProducerScene)
        for number in range(1, (runs if client == OURS else 1) + 1)
    ]


class Room:
    """Lets as many cells run side by side as their work and their number allow; who came first goes first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._work: list[int] = []
        self._waiting: list[tuple[object, int]] = []
        self._closed = False

    @contextmanager
    def place(self, work: int) -> Iterator[None]:
        """Waits for room and takes it.

        Raises:
            RuntimeError: the measurement was broken off.
        """
        me = object()
        with self._changed:
            self._waiting.append((me, work))
            self._changed.wait_for(lambda: self._closed or self._first_that_fits() is me)
            self._waiting.remove((me, work))
            if self._closed:
                raise RuntimeError("broken off")
            self._work.append(work)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._work.remove(work)
                self._changed.notify_all()

    def close(self) -> None:
        """Nothing begins any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _first_that_fits(self) -> object | None:
        return next((who for who, work in self._waiting if self._has_room(work)), None)

    def _has_room(self, work: int) -> bool:
        fits = len(self._work) < _MOST_CHILDREN and sum(self._work) + work <= _SIDE_BY_SIDE
        return fits or not self._work


def under_quota(cluster: ApacheKafka, todo: Sequence[Cell], say: Say, keep: Keep) -> None:
    """Measures cells side by side, the longest first; producers and consumers apart. Every row is kept at once."""
    consumers = [cell for cell in todo if isinstance(cell.scene, ConsumerScene)]
    for part in ([cell for cell in todo if cell not in consumers], consumers):
        filled = {scene: _filled(cluster, scene, say, keep) for scene in {cell.scene: None for cell in part}}
        ready = sorted((cell for cell in part if filled[cell.scene]), key=lambda cell: -cell.expected_s)
        _side_by_side(cluster, ready, say, keep)


def _side_by_side(cluster: ApacheKafka, ready: Sequence[Cell], say: Say, keep: Keep) -> None:
    room, saving = Room(), threading.Lock()

    def work(cell: Cell) -> None:
        row = _measure(cluster, cell, room, say)
        with saving:
            keep(row)

    with ThreadPoolExecutor(max(1, len(ready))) as pool:
        try:
            for done in [pool.submit(work, cell) for cell in ready]:
                done.result()
        except BaseException:
            room.close()
            children.stop_all()
            raise


def calls(cluster: ApacheKafka, scene: CallScene, clients: Sequence[str], say: Say) -> dict[str, Any]:
    """Calls a second of each variant, taken in turns so that a busy moment hits all of them."""
    cluster.create_topic(scene.name)
    if scene.call in {"consume", "poll", "aio-consume"}:
        filling = replace(scene, call="produce", repeats=scene.repeats + 1)
        _call_rates(cluster, filling, "plain", "benchmark-filler")
    variants = [variant for variant in scene.variants if _client_of(variant) in clients]
    rates: dict[str, dict[str, list[float]]] = {variant: {} for variant in variants}
    for turn in range(scene.rounds):
        for variant in variants:
            client_id = f"{scene.name}-{variant}-{turn}"
            if variant == "ours-gated":
                cluster.set_quota(client_id=client_id, producer_byte_rate=_NO_LIMIT, consumer_byte_rate=_NO_LIMIT)
            for key, found in _call_rates(cluster, scene, variant, client_id).items():
                rates[variant].setdefault(key, []).extend(found)
    say(f"measured {scene.name}")
    return {"scene": scene.name, "rates": rates}


def _client_of(variant: str) -> str:
    return variant.split("-", maxsplit=1)[0]


def _call_rates(cluster: ApacheKafka, scene: CallScene, variant: str, client_id: str) -> dict[str, list[float]]:
    spec: dict[str, Any] = {"client": _client_of(variant), "variant": variant, "client_id": client_id}
    spec |= {"call": scene.call, "messages": scene.messages, "repeats": scene.repeats}
    spec |= {"bootstrap": cluster.bootstrap_servers, "topic": scene.name}
    result = measure("calls_aio" if scene.call.startswith("aio-") else "calls", spec, timeout_s=300)
    return {key: rates for key, rates in result.items() if key.endswith(("_per_s", "_per_cpu_s"))}


def broker(scene: BrokerScene, say: Say) -> dict[str, Any]:
    """Start-up, throughput and CPU of the embedded broker beside librdkafka's mock and kfake."""
    kfake = go_peer.built()
    spec = {"messages": scene.messages, "rounds": scene.rounds, "kfake": None if kfake is None else str(kfake)}
    result = measure("broker_runs", spec, timeout_s=1800)
    say(f"measured {scene.name}")
    return {"scene": scene.name, **result}


def _measure(cluster: ApacheKafka, cell: Cell, room: Room, say: Say) -> dict[str, Any]:
    row = {"scene": cell.scene.name, "client": cell.client, "run": cell.number, "quota": cell.scene.quota}
    try:
        with room.place(cell.work):
            say(f"measuring {cell.client_id}")
            if isinstance(cell.scene, ProducerScene):
                return {**row, "kind": "producers", **produce(cluster, cell, cell.scene)}
            if isinstance(cell.scene, LoopScene):
                return {**row, "kind": "loops", **_loop(cluster, cell, cell.scene)}
            return {**row, "kind": "consumers", **_consume(cluster, cell, cell.scene)}
    except Exception as error:  # noqa: BLE001 - whatever fails must not take the others' figures with it
        return {**row, "kind": "failures", "error": f"{type(error).__name__}: {error}"}


def _spec(cluster: ApacheKafka, cell: Cell, topic: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"client": cell.client, "client_id": cell.client_id, "topic": topic}
    spec["bootstrap"] = cluster.bootstrap_servers
    return {**spec, "class_path": java_peer.compiled()} if cell.client.startswith("java") else spec


def produce(cluster: ApacheKafka, cell: Cell, scene: ProducerScene) -> dict[str, Any]:
    """One producer under a quota of its own, and what the broker recorded and stored of it."""
    with _one_by_one:
        cluster.create_topic(cell.client_id, max(scene.partitions, scene.keyless_partitions, 1))
        cluster.set_quota(client_id=cell.client_id, producer_byte_rate=scene.quota)
    spec = {**asdict(scene), **_spec(cluster, cell, cell.client_id)}
    result = measure("producing", spec, timeout_s=cell.expected_s + scene.wait_s + _CHILD_MARGIN_S)
    samples = figures.of_client(cluster.byte_samples(), "Produce", cell.client_id)
    rate = figures.producer_rate(samples, result["begin_ms"])
    compare = {"topic": cell.client_id, "failed_ids": result.pop("failed_ids"), "handed_over": result["handed_over"]}
    stored = measure("readback", {"bootstrap": cluster.bootstrap_servers, **compare}, timeout_s=300)
    recorded = sum(value for _, value in samples)
    distinct = stored["in_log"] - stored["duplicated"]
    share = distinct * mean_size(scene.kind, scene.size) / recorded if recorded else 0.0
    del stored["cpu_s"], stored["stderr"]
    return {
        **result,
        **stored,
        "utilisation": None if rate is None else rate / scene.quota,
        "payload_share": None if rate is None else rate * share / scene.quota,
        "bytes_a_message": recorded / distinct if distinct else None,
        "recorded": figures.course(samples, result["begin_ms"]),
    }


def _consume(cluster: ApacheKafka, cell: Cell, scene: ConsumerScene) -> dict[str, Any]:
    cluster.set_quota(client_id=cell.client_id, consumer_byte_rate=scene.quota)
    spec = {**_spec(cluster, cell, _log_of(scene)), "seconds": scene.seconds}
    result = measure("consuming", spec, timeout_s=scene.seconds + _CHILD_MARGIN_S + 180)
    samples = figures.of_client(cluster.byte_samples(), "Fetch", cell.client_id)
    rate = figures.consumer_rate(samples, result["begin_ms"], result["end_ms"])
    steady_s = (result["end_ms"] - result["begin_ms"]) / 1000 - WARM_UP_S
    return {
        **result,
        "utilisation": None if rate is None else rate / scene.quota,
        "payload_share": None if rate is None else result["steady_payload"] / steady_s / scene.quota,
        "recorded": figures.course(samples, result["begin_ms"]),
    }


def _loop(cluster: ApacheKafka, cell: Cell, scene: LoopScene) -> dict[str, Any]:
    cluster.create_topic(cell.client_id)
    cluster.set_quota(client_id=cell.client_id, producer_byte_rate=scene.quota)
    spec = {**_spec(cluster, cell, cell.client_id), "source": _source_of(scene), "reader_id": "benchmark-loop-reader"}
    spec |= {"seconds": scene.seconds, "commit_every": scene.commit_every, "poll_interval_ms": scene.poll_interval_ms}
    result = measure("looping", spec, timeout_s=scene.seconds + _CHILD_MARGIN_S)
    samples = figures.of_client(cluster.byte_samples(), "Produce", cell.client_id)
    rate = figures.producer_rate(samples, result["begin_ms"])
    compare = {"topic": cell.client_id, "group": cell.client_id, "source": _source_of(scene)}
    stored = measure("readback", {"bootstrap": cluster.bootstrap_servers, **compare}, timeout_s=300)
    del stored["cpu_s"], stored["stderr"]
    utilisation = None if rate is None else rate / scene.quota
    return {**result, **stored, "utilisation": utilisation, "recorded": figures.course(samples, result["begin_ms"])}


def _log_of(scene: ConsumerScene) -> str:
    return f"log-{scene.batch_bytes}-{scene.quota}"


def _source_of(scene: LoopScene) -> str:
    return f"source-{scene.name}"


def _filled(cluster: ApacheKafka, scene: QuotaScene, say: Say, keep: Keep) -> bool:
    """Whether the scene has what it reads."""
    try:
        if isinstance(scene, ConsumerScene):
            _fill(cluster, scene, say)
        elif isinstance(scene, LoopScene):
            _fill_source(cluster, scene, say)
    except Exception as error:  # noqa: BLE001 - as where scenes are measured
        keep({"kind": "failures", "scene": scene.name, "client": "", "error": f"{type(error).__name__}: {error}"})
        return False
    return True


def _fill_source(cluster: ApacheKafka, scene: LoopScene, say: Say) -> None:
    """Three times what the quota lets through."""
    cluster.create_topic(_source_of(scene))
    spec: dict[str, Any] = {"bootstrap": cluster.bootstrap_servers, "topic": _source_of(scene), "partitions": 1}
    spec |= {"batches": scene.quota * scene.seconds * 3 // _LOOP_BATCH_BYTES + 40, "batch_bytes": _LOOP_BATCH_BYTES}
    say(f"filled {_source_of(scene)}: {measure('filling', spec, timeout_s=600)['messages']} messages")


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
