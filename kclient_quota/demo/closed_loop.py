"""From throttled clients to the quotas that serve them: pushes, a topic, Spark, a file, `kafka-quotas apply`.

The parts are those that anybody would put together: the clients push (KIP-714), a receiver writes a topic, the job
`usage` runs as a stream, `recommend` reads what it has written, `kafka-quotas` applies the file.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kclient_telemetry.receiver.queued import QueuedSink

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.clients.telemetry_topic import TopicWriter
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.demo.fleet import Fleet, Member, Moment
from kclient_quota.errors import ClusterError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

METRICS: Final = (
    "org.apache.kafka.producer.node.outgoing.byte.total",
    "org.apache.kafka.producer.produce.throttle.time.total",
    "org.apache.kafka.producer.quota.wait.time.total",
)
"""What is subscribed to: bytes to each broker, for how long clients were throttled, and for how long they waited."""
MEMBERS: Final = (
    *(Member(f"meter-{number:02}", 6_000) for number in range(40)),
    *(Member(f"camera-{number:02}", 60_000) for number in range(10)),
)
QUOTA: Final = 20_000
"""Everybody's: producer_byte_rate of the default client-id."""
PUSH_MS: Final = 2_000
TOPIC, ARCHIVE_TOPIC = "readings", "client-metrics"
WINDOW_S: Final = 6
WINDOWS: Final = 4
"""How many windows of every client are waited for: in the first ones clients are still getting to know their brokers.

Clients ask for their limit once a minute, so that an earlier apply would not be followed earlier.
"""
QUIET_MS: Final = 5_000
"""Nobody throttled or waiting for so long: it is over."""
HEADROOM: Final = 1.5
_PATIENCE_S: Final = 300
_LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Route:
    """Where everything is.

    Attributes:
        bootstrap_servers: the cluster that has the quotas.
        archive: configuration of a client of the cluster that has the topic of pushes.
        archive_topic: that topic; is there already.
        folder: for Spark's output and the file of quotas.
    """

    bootstrap_servers: str
    archive: Mapping[str, Any]
    archive_topic: str
    folder: Path

    @property
    def usage(self) -> Path:
        """What the stream writes."""
        return self.folder / "usage"

    @property
    def file(self) -> Path:
        """The recommended quotas."""
        return self.folder / "quotas.yaml"


@dataclass(frozen=True, slots=True)
class Closed:
    """How it went.

    Attributes:
        applied_at_ms: when `kafka-quotas apply` had ended.
        begin: the first moment.
        before: the last one before it.
        settled: the last one at which somebody lacked quota, before all was quiet for `QUIET_MS`.
        calm: after those.
        after: `QUIET_MS` later still.
        quotas: the recommended file.
        rows: rows of usage that it was worked out from.
    """

    applied_at_ms: int
    begin: Moment
    before: Moment
    settled: Moment
    calm: Moment
    after: Moment
    quotas: str
    rows: int


@contextmanager
def embedded_route(folder: Path) -> Iterator[Route]:
    """Two embedded clusters: one under the quota, with a receiver, and one that has the topic of pushes."""
    with EmbeddedBroker(topics={ARCHIVE_TOPIC: 1}) as archive:
        conf = {"bootstrap.servers": archive.bootstrap_servers}
        sinks = [QueuedSink(TopicWriter(conf, ARCHIVE_TOPIC))]
        with EmbeddedBroker(topics={TOPIC: 1}, exporters=sinks) as cluster:
            cluster.set_quota(default_client_id=True, producer_byte_rate=QUOTA)
            cluster.set_client_metrics("quotas", metrics=METRICS, interval_ms=PUSH_MS)
            yield Route(cluster.bootstrap_servers, conf, ARCHIVE_TOPIC, folder)


def close_loop(spark: "SparkSession", route: Route, fleet: Fleet, say: Callable[[str], None]) -> Closed:
    """Wait for usage, recommend, apply, wait until nobody is throttled or waits any more.

    Args:
        spark: the session.
        route: where everything is.
        fleet: is at work already, and pushes.
        say: is told what happens.

    Raises:
        ClusterError: the usage of some client did not arrive, or the quotas were refused.
    """
    rows = _await_usage(spark, route, fleet)
    say(f"usage: {rows} rows, a row a client and {WINDOW_S} seconds, written by the stream")
    say(f"recommend: {_recommend(spark, route)} quotas")
    before = fleet.history[-1]
    say(_kafka_quotas("plan", route).splitlines()[-1])
    _kafka_quotas("apply", route)
    applied_at_ms = SYSTEM_CLOCK.now_ms()
    say("applied")
    while True:
        settled, calm = _await_quiet(fleet)
        time.sleep(QUIET_MS / 1000)
        after = fleet.history[-1]
        # a machine that stood still for a moment has something to make up for
        if not after.lacking(calm) or after.at_ms - applied_at_ms > _PATIENCE_S * 1000:
            break
    return Closed(
        applied_at_ms,
        fleet.history[0],
        before,
        settled,
        calm,
        after,
        route.file.read_text(encoding="utf-8"),
        rows,
    )


def _await_usage(spark: "SparkSession", route: Route, fleet: Fleet) -> int:
    """Run the stream, which takes up where it stopped, until every client has its windows; returns the rows."""
    from kclient_quota.spark.pipeline import Plan, run  # noqa: PLC0415 - its libraries are an extra

    plan = Plan(
        "usage",
        route.archive_topic,
        str(route.usage),
        client=route.archive,
        window=f"{WINDOW_S} seconds",
        late="1 second",
        push_interval=f"{2 * PUSH_MS} ms",  # a first push may come half an interval later, on a busy machine more
        checkpoint=str(route.folder / "checkpoint"),
    )
    wanted = {member.client_id for member in fleet.members}
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        run(spark, plan)
        windows = _windows(spark.read.parquet(str(route.usage))) if _has_written(route.usage) else {}
        missing = {name for name in wanted if windows.get(name, 0) < WINDOWS}
        if not missing:
            return sum(windows.values())
        if time.monotonic() > deadline:
            raise ClusterError(f"{len(missing)} clients, such as {min(missing)}, have not told their usage in time")
        time.sleep(WINDOW_S)


def _has_written(folder: Path) -> bool:
    """Whether the stream has committed a file."""
    return any("part-" in commit.read_text() for commit in folder.glob("_spark_metadata/[0-9]*"))


def _windows(usage: "DataFrame") -> dict[str, int]:
    """How many rows with a byte rate each client has."""
    told = usage.where("byte_rate is not null").groupBy("client_id").count()
    return {row["client_id"]: row["count"] for row in told.collect()}


def _recommend(spark: "SparkSession", route: Route) -> int:
    """Write the file; returns how many quotas are in it."""
    from kclient_quota.spark.jobs.recommend import Policy, quota_file, recommend  # noqa: PLC0415 - as above

    policy = Policy(headroom=HEADROOM, default_quantile=0.8)
    rows = recommend(spark.read.parquet(str(route.usage)), policy).collect()
    route.file.write_text(quota_file(rows, policy), encoding="utf-8")
    return len(rows)


def _kafka_quotas(command: str, route: Route) -> str:
    words = [command, str(route.file), "--bootstrap-server", route.bootstrap_servers, "--units-store", "none"]
    done = subprocess.run(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-m", "kclient_quota.cli.quotas", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ClusterError(done.stderr.strip().removeprefix("kafka-quotas: "))
    return done.stdout


def _await_quiet(fleet: Fleet) -> tuple[Moment, Moment]:
    """The moment after which nobody has lacked quota for long, and that much later."""
    deadline_ms = SYSTEM_CLOCK.now_ms() + _PATIENCE_S * 1000
    settled = fleet.history[-1]
    while True:
        time.sleep(_LOOK_S)
        now = fleet.history[-1]
        if now.lacking(settled):
            if now.at_ms > deadline_ms:
                return settled, now
            settled = now
        elif now.at_ms - settled.at_ms >= QUIET_MS:
            return settled, now
