"""Does the simulation tell the truth: real clients on real brokers beside the same scenario in virtual time.

`python -m benchmarks.simulation [--seconds 60] [--kafka] [--only CASE …]` plays a few cases at a time, each with a
client-id, a quota and a topic of its own and in a process of its own, on the embedded broker or on Apache Kafka 4.3.1,
and prints utilisation, fairness and throttle times of both worlds; of plain producers time-outs and duplicates too.
"""

import argparse
import contextlib
import fnmatch
import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition

from benchmarks.simulation_cases import CASES, EMBEDDED, KAFKA, Case
from benchmarks.simulation_clients import Done
from kclient_quota.broker import EmbeddedBroker
from kclient_quota.broker.request.node import REQUESTS_KEPT
from kclient_quota.cli.simulation_run import play
from kclient_quota.simulation import Network, figures
from kclient_quota.simulation.outcome import RECORD_WIRE_BYTES, REQUEST_WIRE_BYTES
from kclient_quota.simulation.rates import jain_index, percentile
from kclient_quota.testing.apache import ApacheKafka

START_S: Final = 4
"""Until everybody is connected, before time counts."""
AGREE: Final = 0.05
PRODUCE: Final = 0
FETCH: Final = 1
SEEDS: Final = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one world says of a case: see `kclient_quota.simulation.Figures`.

    Attributes:
        utilisation: bytes recorded / (quota x time x brokers).
        payload: values delivered / (quota x time x brokers); None where it is not simulated.
        jain: fairness between the clients.
        throttle_p99_ms: of all responses; None where brokers do not tell.
        timeouts: connections that plain producers gave up, in all the time.
        duplicates: messages in the log that plain producers sent again.
        expired: messages that plain producers gave up.
    """

    utilisation: float
    payload: float | None
    jain: float
    throttle_p99_ms: int | None
    timeouts: float = 0
    duplicates: float = 0
    expired: float = 0


def simulated(case: Case, seconds: int, network: Network = EMBEDDED) -> Finding:
    """The case in virtual time: the means of a few seeds."""
    scenario = case.scenario(seconds, network)
    found = [figures(scenario, play(scenario, seed, jobs=1)) for seed in SEEDS]
    utilisation = _mean([each.utilisation for each in found])
    jain = _mean([each.jain for each in found])
    p99 = max(each.throttle_p99_ms for each in found)
    if case.consume:
        return Finding(utilisation, None, jain, p99)
    plain = [each.delivery for each in found if each.delivery is not None]
    if plain:
        payload = _mean([each.utilisation for each in plain]) if not case.clients else None
        counts = (
            [each.timeouts for each in plain],
            [each.duplicates for each in plain],
            [each.expired for each in plain],
        )
        return Finding(utilisation, payload, jain, p99, *map(_mean, counts))
    requests = _mean([each.requests for each in found])
    recorded = utilisation * case.quota * case.partitions
    framing = requests / scenario.seconds * REQUEST_WIRE_BYTES + recorded * RECORD_WIRE_BYTES / (
        case.message_bytes + RECORD_WIRE_BYTES
    )
    return Finding(utilisation, (recorded - framing) / (case.quota * case.partitions), jain, p99)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def real(cases: Sequence[Case], seconds: int, *, kafka: bool = False) -> dict[str, Finding]:
    """All cases at once on one cluster."""
    brokers = max(case.partitions for case in cases)
    with _cluster(brokers, {case.name: case.partitions for case in cases}, kafka=kafka) as cluster:
        for case in cases:
            if case.consume:
                _fill(cluster.bootstrap_servers, case, case.lasts_s(seconds))
            cluster.set_quota(
                client_id=case.name, **{"consumer_byte_rate" if case.consume else "producer_byte_rate": case.quota}
            )
        begin_s = time.time() + START_S
        done = _play_all([_spec(case, seconds, begin_s, cluster.bootstrap_servers) for case in cases])
        found = {}
        for case in cases:
            end_s = begin_s + case.lasts_s(seconds)
            span = (int((end_s - case.lasts_s(seconds) * (1 - case.warm_up)) * 1000), int(end_s * 1000))
            recorded = (
                _from_kafka(cluster, case, span)
                if isinstance(cluster, ApacheKafka)
                else _from_embedded(cluster, case, span)
            )
            in_log = _log_length(cluster.bootstrap_servers, case) if case.plain and not case.consume else 0
            found[case.name] = _finding(case, recorded, done[case.name], in_log, span)
        return found


def _spec(case: Case, seconds: int, begin_s: float, bootstrap: str) -> dict[str, Any]:
    """For `benchmarks.simulation_clients`."""
    return {
        "bootstrap": bootstrap,
        "case": case.name,
        "clients": case.clients,
        "plain": case.plain,
        "consume": case.consume,
        "knowing": case.clients - case.learning if case.told else 0,
        "partitions": case.partitions,
        "keyed": case.keyed,
        "message_bytes": case.message_bytes,
        "per_message_s": case.message_bytes / case.demand,
        "socket_timeout_ms": case.socket_timeout_ms,
        "begin_s": begin_s,
        "seconds": case.lasts_s(seconds),
        "warm_up_s": case.warm_up * case.lasts_s(seconds),
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
    rate: float
    throttles: Counter[int] | None = None


def _finding(case: Case, recorded: _Recorded, done: Done, in_log: int, span: tuple[int, int]) -> Finding:
    wanted = case.quota * case.partitions
    payload = sum(done.delivered) * case.message_bytes * 1000 / (span[1] - span[0])
    p99 = None if recorded.throttles is None else percentile(recorded.throttles, 0.99)
    ours = done.delivered[: case.clients] or done.delivered
    # What was recorded last may not have been acknowledged yet; what expired may have been recorded.
    duplicates = max(0, in_log - sum(done.acknowledged))
    return Finding(
        recorded.rate / wanted,
        payload / wanted,
        jain_index(ours),
        p99,
        sum(done.timeouts),
        duplicates,
        sum(done.expired),
    )


def _log_length(bootstrap: str, case: Case) -> int:
    """How many messages there are in the topic."""
    consumer = ConfluentConsumer({"bootstrap.servers": bootstrap, "group.id": "length"})
    try:
        return sum(
            consumer.get_watermark_offsets(TopicPartition(case.name, partition), timeout=30)[1]
            for partition in range(case.partitions)
        )
    finally:
        consumer.close()


@contextlib.contextmanager
def _cluster(brokers: int, topics: dict[str, int], *, kafka: bool) -> Iterator[EmbeddedBroker | ApacheKafka]:
    if kafka:
        with ApacheKafka(brokers=brokers, topics=topics) as cluster:
            yield cluster
    else:
        with EmbeddedBroker(brokers=brokers, topics=topics) as embedded:
            yield embedded


def _play_all(specs: list[dict[str, Any]]) -> dict[str, Done]:
    """One process for each case."""
    command = [sys.executable, "-m", "benchmarks.simulation_clients"]
    processes = {
        spec["case"]: subprocess.Popen([*command, json.dumps(spec)], stdout=subprocess.PIPE, text=True)
        for spec in specs
    }
    longest_s = max(spec["seconds"] for spec in specs)
    try:
        found = {}
        for name, process in processes.items():
            said, _ = process.communicate(timeout=longest_s + START_S + 60)
            found[name] = Done(**json.loads(said))
        return found
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def _from_embedded(cluster: EmbeddedBroker, case: Case, span: tuple[int, int]) -> _Recorded:
    """A throttled fetch is answered empty and not counted."""
    found = _Recorded(0.0, Counter())
    assert found.throttles is not None
    requests = cluster.requests
    if len(requests) >= REQUESTS_KEPT and requests[0].at_ms > span[0]:
        raise RuntimeError("there were more requests than the broker remembers: play fewer cases --at-once")
    for seen in requests:
        fetch = seen.api_key == FETCH
        if seen.client_id != case.name or seen.api_key != (FETCH if case.consume else PRODUCE):
            continue
        if span[0] <= seen.at_ms < span[1]:
            nbytes = seen.size_bytes if not fetch else 0 if seen.throttle_time_ms else seen.response_bytes
            found.rate += nbytes * 1000 / (span[1] - span[0])
            found.throttles[seen.throttle_time_ms] += 1
    return found


def _from_kafka(cluster: ApacheKafka, case: Case, span: tuple[int, int]) -> _Recorded:
    """From the first sample in the span to the start of the last one, of each broker: samples are not cut.

    Of the few large requests of plain producers all samples count, in all of the span.
    """
    samples: defaultdict[int, dict[int, float]] = defaultdict(dict)
    for sample in cluster.byte_samples():
        ours = (sample.client_id, sample.quota_type) == (case.name, case.quota_type)
        if ours and sample.value > 0 and span[0] <= sample.start_ms < span[1]:
            samples[sample.node_id][sample.start_ms] = sample.value
    found = _Recorded(0.0)
    for values in samples.values():
        starts = sorted(values)
        if case.plain and not case.consume:
            found.rate += sum(values.values()) * 1000 / (span[1] - span[0])
            continue
        elapsed_ms = sum(later - earlier for earlier, later in pairwise(starts))
        found.rate += sum(values[start] for start in starts[:-1]) * 1000 / max(elapsed_ms, 1)
    return found


# Command line


def main(arguments: list[str] | None = None) -> int:
    """Plays the cases in both worlds; status 1 when any utilisation is more than 5 % off."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulation", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="length of most cases (default: %(default)s)")
    parser.add_argument("--kafka", action="store_true", help="on Apache Kafka, in place of the embedded broker")
    parser.add_argument("--only", nargs="*", metavar="CASE", help="names, or patterns such as 'plain-*' (default: all)")
    parser.add_argument("--at-once", type=int, default=6, metavar="N", help="cases at a time (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="name the cases")
    options = parser.parse_args(arguments)
    cases = [case for case in CASES if any(fnmatch.fnmatch(case.name, only) for only in options.only or ["*"])]
    if options.list or not cases:
        print("\n".join(case.name for case in CASES))
        return 0 if options.list else 2
    # Cases that last equally long go together.
    cases.sort(key=lambda case: case.lasts_s(options.seconds))
    print(f"{'case':<28}{'utilisation':>20}{'off':>8}{'payload':>16}{'Jain':>16}{'p99 throttle ms':>18}")
    worst = 0.0
    for first in range(0, len(cases), options.at_once):
        some = cases[first : first + options.at_once]
        found = real(some, options.seconds, kafka=options.kafka)
        for case in some:
            seen = simulated(case, options.seconds, KAFKA if options.kafka else EMBEDDED)
            worst = max(worst, abs(_print(case, found[case.name], seen)))
    print("Each pair: real, simulated.")
    return 1 if worst > AGREE else 0


def _print(case: Case, theirs: Finding, ours: Finding) -> float:
    off = ours.utilisation / theirs.utilisation - 1 if theirs.utilisation else 1.0
    row = (
        f"{case.name:<28}{theirs.utilisation:>10.3f} {ours.utilisation:>9.3f}{off:>+8.1%}"
        f"{theirs.payload or 0.0:>8.3f}{'-' if ours.payload is None else f'{ours.payload:.3f}':>8}"
        f"{theirs.jain:>8.3f}{ours.jain:>8.3f}"
        f"{'-' if theirs.throttle_p99_ms is None else theirs.throttle_p99_ms:>9}{ours.throttle_p99_ms:>9}"
    )
    if case.plain and not case.consume:
        row += (
            f"  time-outs {theirs.timeouts:.0f} {ours.timeouts:.0f}, duplicates {theirs.duplicates:,.0f} "
            f"{ours.duplicates:,.0f}, expired {theirs.expired:,.0f} {ours.expired:,.0f}"
        )
    print(row, flush=True)
    return off


if __name__ == "__main__":
    sys.exit(main())
