"""Does the simulation tell the truth: real clients on real brokers beside the same scenario in virtual time.

`python -m benchmarks.simulation [--seconds 60] [--kafka]` plays every case at the same time, each with a client-id, a
quota and a topic of its own and in a process of its own, on the embedded broker or on Apache Kafka 4.3.1, and prints
utilisation, fairness and throttle times of both worlds.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli.simulate import play
from kclient_quota.simulation import Scenario, figures
from kclient_quota.simulation.outcome import RECORD_WIRE_BYTES, REQUEST_WIRE_BYTES
from kclient_quota.simulation.rates import jain_index, percentile
from kclient_quota.testing.apache import ApacheKafka

WARM_UP: Final = 0.5
"""Part of each run that is left out at the start."""
START_S: Final = 4
"""Until everybody is connected, before time counts."""
AGREE: Final = 0.05
PRODUCE: Final = 0
FETCH: Final = 1
SEEDS: Final = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Case:
    """One scenario, played for real and in virtual time.

    Attributes:
        name: also the client-id and the topic.
        clients: producers that share the quota, with endless work, or consumers, with more to read than they may.
        quota: bytes per second on each broker.
        told: whether clients ask the cluster for the quota; else they learn.
        partitions: of the topic, one leader each; 1, or as many as there are brokers.
        message_bytes: length of each value.
        consume: whether they are consumers.
        plain: plain clients beside them.
        batch_messages: messages in each batch that is read.
    """

    name: str
    clients: int
    quota: int
    told: bool = True
    partitions: int = 1
    message_bytes: int = 1_000
    consume: bool = False
    plain: int = 0
    batch_messages: int = 4

    @property
    def quota_type(self) -> str:
        """Kafka's name of the quota."""
        return "Fetch" if self.consume else "Produce"

    def scenario(self, seconds: int) -> Scenario:
        """The same in virtual time."""
        return Scenario(
            brokers=self.partitions,
            clients=self.clients,
            plain=self.plain,
            consume=self.consume,
            quota=self.quota,
            message_bytes=self.message_bytes,
            batch_messages=self.batch_messages,
            seconds=seconds,
            told=self.told,
            leaders=(tuple(range(self.partitions)),),
            warm_up_ms=int(WARM_UP * seconds * 1000),
        )


CASES: Final = (
    Case("alone-51k", 1, 51_200),
    Case("alone-1M", 1, 1_048_576),
    Case("alone-learnt-51k", 1, 51_200, told=False),
    Case("two-51k", 2, 51_200),
    Case("eight-204k", 8, 204_800),
    Case("eight-1M", 8, 1_048_576),
    Case("two-learnt-204k", 2, 204_800, told=False),
    Case("eight-learnt-204k", 8, 204_800, told=False),
    Case("three-brokers-51k", 1, 51_200, partitions=3),
    Case("two-on-three-51k", 2, 51_200, partitions=3),
    Case("plain-51k", 0, 51_200, plain=1),
    Case("reads-51k", 1, 51_200, consume=True),
    Case("reads-1M", 1, 1_048_576, consume=True),
    Case("two-read-204k", 2, 204_800, consume=True),
    Case("eight-read-1M", 8, 1_048_576, consume=True),
    Case("plain-reads-1M", 0, 1_048_576, consume=True, plain=1),
    Case("one-of-two-plain-reads-1M", 1, 1_048_576, consume=True, plain=1),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one world says of a case: see `kclient_quota.simulation.Figures`.

    Attributes:
        utilisation: bytes recorded / (quota x time x brokers).
        payload: values delivered / (quota x time x brokers); None where it is not simulated.
        jain: fairness between the clients.
        throttle_p99_ms: of all responses; None where brokers do not tell.
    """

    utilisation: float
    payload: float | None
    jain: float
    throttle_p99_ms: int | None


def simulated(case: Case, seconds: int) -> Finding:
    """The case in virtual time: the means of a few seeds."""
    scenario = case.scenario(seconds)
    found = [figures(scenario, play(scenario, seed, jobs=1)) for seed in SEEDS]
    utilisation = sum(each.utilisation for each in found) / len(found)
    jain = sum(each.jain for each in found) / len(found)
    p99 = max(each.throttle_p99_ms for each in found)
    if case.consume:
        return Finding(utilisation, None, jain, p99)
    requests = sum(each.requests for each in found) / len(found)
    recorded = utilisation * case.quota * case.partitions
    framing = requests / seconds * REQUEST_WIRE_BYTES + recorded * RECORD_WIRE_BYTES / (
        case.message_bytes + RECORD_WIRE_BYTES
    )
    return Finding(
        utilisation,
        (recorded - framing) / (case.quota * case.partitions),
        jain,
        p99,
    )


def real(cases: Sequence[Case], seconds: int, *, kafka: bool = False) -> dict[str, Finding]:
    """All cases at once on one cluster."""
    brokers = max(case.partitions for case in cases)
    with _cluster(brokers, {case.name: case.partitions for case in cases}, kafka=kafka) as cluster:
        for case in cases:
            if case.consume:
                _fill(cluster.bootstrap_servers, case, seconds)
            cluster.set_quota(
                client_id=case.name, **{"consumer_byte_rate" if case.consume else "producer_byte_rate": case.quota}
            )
        begin_s = time.time() + START_S
        specs = [
            {
                "bootstrap": cluster.bootstrap_servers,
                "case": case.name,
                "clients": case.clients,
                "plain": case.plain,
                "consume": case.consume,
                "told": case.told,
                "partitions": case.partitions,
                "message_bytes": case.message_bytes,
                "begin_s": begin_s,
                "seconds": seconds,
            }
            for case in cases
        ]
        delivered = _play_all(specs)
        span = (int((begin_s + WARM_UP * seconds) * 1000), int((begin_s + seconds) * 1000))
        recorded = _from_kafka(cluster, span) if isinstance(cluster, ApacheKafka) else _from_embedded(cluster, span)
    return {
        case.name: _finding(case, recorded[case.name, case.quota_type], delivered[case.name], seconds) for case in cases
    }


def _fill(bootstrap: str, case: Case, seconds: int) -> None:
    """More than may be read: what the window allows at once, and then the quota, for each partition."""
    per_partition = int(case.quota * (seconds + 15) / case.message_bytes)
    producer = ConfluentProducer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 2_000,
            "batch.num.messages": case.batch_messages,
            "queue.buffering.max.messages": per_partition,
        }
    )
    value = b"v" * case.message_bytes
    for partition in range(case.partitions):
        for _ in range(per_partition):
            producer.produce(case.name, value, partition=partition)
        if producer.flush(120) > 0:
            raise RuntimeError(f"filling {case.name} took too long")


@dataclass(slots=True)
class _Recorded:
    rate: float = 0.0
    throttles: Counter[int] | None = None


def _finding(case: Case, recorded: _Recorded, delivered: list[int], seconds: int) -> Finding:
    wanted = case.quota * case.partitions
    payload = sum(delivered) * case.message_bytes / (seconds * (1 - WARM_UP))
    p99 = None if recorded.throttles is None else percentile(recorded.throttles, 0.99)
    ours = delivered[: case.clients] or delivered
    return Finding(recorded.rate / wanted, payload / wanted, jain_index(ours), p99)


@contextlib.contextmanager
def _cluster(brokers: int, topics: dict[str, int], *, kafka: bool) -> Iterator[EmbeddedBroker | ApacheKafka]:
    if kafka:
        with ApacheKafka(brokers=brokers, topics=topics) as cluster:
            yield cluster
    else:
        with EmbeddedBroker(brokers=brokers, topics=topics) as embedded:
            yield embedded


def _play_all(specs: list[dict[str, Any]]) -> dict[str, list[int]]:
    """One process for each case; messages that each of its clients delivered after the warm-up."""
    command = [sys.executable, "-m", "benchmarks.simulation", "--case"]
    processes = {
        spec["case"]: subprocess.Popen([*command, json.dumps(spec)], stdout=subprocess.PIPE, text=True)
        for spec in specs
    }
    try:
        found = {}
        for name, process in processes.items():
            said, _ = process.communicate(timeout=specs[0]["seconds"] + START_S + 60)
            found[name] = json.loads(said)
        return found
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def _from_embedded(cluster: EmbeddedBroker, span: tuple[int, int]) -> dict[tuple[str, str], _Recorded]:
    """By client-id and quota; a throttled fetch is answered empty and not counted."""
    rows: defaultdict[tuple[str, str], _Recorded] = defaultdict(lambda: _Recorded(throttles=Counter()))
    for seen in cluster.requests:
        if seen.api_key not in {PRODUCE, FETCH} or not seen.client_id or not span[0] <= seen.at_ms < span[1]:
            continue
        fetch = seen.api_key == FETCH
        row = rows[seen.client_id, "Fetch" if fetch else "Produce"]
        assert row.throttles is not None
        nbytes = seen.size_bytes if not fetch else 0 if seen.throttle_time_ms else seen.response_bytes
        row.rate += nbytes * 1000 / (span[1] - span[0])
        row.throttles[seen.throttle_time_ms] += 1
    return rows


def _from_kafka(cluster: ApacheKafka, span: tuple[int, int]) -> dict[tuple[str, str], _Recorded]:
    """From the first sample in the span to the start of the last one, of each broker: samples are not cut."""
    samples: defaultdict[tuple[str, str, int], dict[int, float]] = defaultdict(dict)
    for sample in cluster.byte_samples():
        if sample.value > 0 and span[0] <= sample.start_ms < span[1]:
            samples[sample.client_id, sample.quota_type, sample.node_id][sample.start_ms] = sample.value
    rows: defaultdict[tuple[str, str], _Recorded] = defaultdict(_Recorded)
    for (client_id, quota_type, _), values in samples.items():
        starts = sorted(values)
        elapsed_ms = sum(later - earlier for earlier, later in pairwise(starts))
        rows[client_id, quota_type].rate += sum(values[start] for start in starts[:-1]) * 1000 / max(elapsed_ms, 1)
    return rows


# One case in a process of its own


def _play_case(spec: dict[str, Any]) -> list[int]:
    """Messages of each client, the plain ones last."""
    together = spec["clients"] + spec["plain"]
    delivered = [0] * together
    play_one = _consume if spec["consume"] else _produce
    threads = [
        threading.Thread(target=play_one, args=(spec, number, delivered), daemon=True) for number in range(together)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return delivered


def _conf(spec: dict[str, Any], number: int) -> tuple[dict[str, Any], bool]:
    """A client's configuration, and whether it is one of kclient-quota's."""
    conf = {"bootstrap.servers": spec["bootstrap"], "client.id": spec["case"]}
    ours = number < spec["clients"]
    if ours and not spec["told"]:
        conf["quota.limit.source"] = "learned"
    return conf, ours


def _await_turn(spec: dict[str, Any], number: int) -> None:
    time.sleep(max(0.0, spec["begin_s"] - time.time()) + number * 1.0 / (spec["clients"] + spec["plain"]))


def _produce(spec: dict[str, Any], number: int, delivered: list[int]) -> None:
    """Endless work until the end, counted when it is delivered."""
    from kclient_quota import Producer  # noqa: PLC0415  the simulation needs no client

    conf, ours = _conf(spec, number)
    producer: Any = Producer(conf) if ours else ConfluentProducer(conf)
    begin_s, end_s = spec["begin_s"], spec["begin_s"] + spec["seconds"]

    def on_delivery(error: object, _: object) -> None:
        if error is None and begin_s + WARM_UP * spec["seconds"] <= time.time() < end_s:
            delivered[number] += 1

    value = b"v" * spec["message_bytes"]
    _await_turn(spec, number)
    while time.time() < end_s:
        try:
            producer.produce(spec["case"], value, on_delivery=on_delivery)
        except BufferError:
            producer.poll(0.1)
        producer.poll(0)
    producer.purge()
    producer.close()


def _consume(spec: dict[str, Any], number: int, delivered: list[int]) -> None:
    """Read as fast as may be until the end, counted when it is received."""
    from kclient_quota import Consumer  # noqa: PLC0415  the simulation needs no client

    conf, ours = _conf(spec, number)
    conf |= {"group.id": f"{spec['case']}-{number}", "enable.auto.commit": False}
    _await_turn(spec, number)
    consumer: Any = Consumer(conf) if ours else ConfluentConsumer(conf)
    consumer.assign([TopicPartition(spec["case"], partition, 0) for partition in range(spec["partitions"])])
    begin_s, end_s = spec["begin_s"] + WARM_UP * spec["seconds"], spec["begin_s"] + spec["seconds"]
    now_s = time.time()
    while now_s < end_s:
        message = consumer.poll(0.1)
        now_s = time.time()
        if message is not None and message.error() is None and begin_s <= now_s < end_s:
            delivered[number] += 1
    consumer.close()


# Command line


def main(arguments: list[str] | None = None) -> int:
    """Plays the cases in both worlds; status 1 when any utilisation is more than 5 % off."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulation", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="length of each case (default: %(default)s)")
    parser.add_argument("--kafka", action="store_true", help="on Apache Kafka, in place of the embedded broker")
    parser.add_argument("--only", nargs="*", metavar="CASE", choices=[case.name for case in CASES])
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.case is not None:
        print(json.dumps(_play_case(json.loads(options.case))))
        return 0
    cases = [case for case in CASES if not options.only or case.name in options.only]
    found = real(cases, options.seconds, kafka=options.kafka)
    worst = 0.0
    print(f"{'case':<28}{'utilisation':>20}{'off':>8}{'payload':>16}{'Jain':>16}{'p99 throttle ms':>18}")
    for case in cases:
        ours, theirs = simulated(case, options.seconds), found[case.name]
        off = ours.utilisation / theirs.utilisation - 1
        worst = max(worst, abs(off))
        print(
            f"{case.name:<28}{theirs.utilisation:>10.3f} {ours.utilisation:>9.3f}{off:>+8.1%}"
            f"{theirs.payload or 0.0:>8.3f}{'-' if ours.payload is None else f'{ours.payload:.3f}':>8}"
            f"{theirs.jain:>8.3f}{ours.jain:>8.3f}"
            f"{'-' if theirs.throttle_p99_ms is None else theirs.throttle_p99_ms:>9}{ours.throttle_p99_ms:>9}"
        )
    print("Each pair: real, simulated.")
    return 1 if worst > AGREE else 0


if __name__ == "__main__":
    sys.exit(main())
