"""`kclient-quota receive`: client telemetry out of a topic, to collectors, to a page for Prometheus, into files."""

import argparse
import json
import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kclient_telemetry.errors import MissingExtraError
from kclient_telemetry.receiver.otlp_options import add_otlp_arguments

from kclient_quota.cli.printing import notice, say, warn
from kclient_quota.cli.quantities import port, seconds
from kclient_quota.cli.quota_options import add_cluster_options, configuration
from kclient_quota.cli.telemetry_sources import check_topic, subscribed
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.errors import ConfigError
from kclient_quota.stops import stops_heard

if TYPE_CHECKING:
    from collections.abc import Callable

    from kclient_telemetry.receiver.endpoint import PrometheusEndpoint
    from kclient_telemetry.receiver.exposition import Family
    from kclient_telemetry.receiver.files import JsonLinesWriter, ParquetWriter
    from kclient_telemetry.receiver.otlp_export import OtlpExporter
    from kclient_telemetry.receiver.queued import QueuedSink

    from kclient_quota.clients.consumer import Consumer
    from kclient_quota.operate.topic_receiver import Sink, TopicReceiver

_HERE = "127.0.0.1"
_GIVE_UP_MS = 24 * 3_600_000
_CLOSE_MS = 10_000
_HURRY_MS = 400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "--from-topic",
        required=True,
        metavar="NAME",
        help="a topic whose records are OTLP metrics, as our TopicWriter and OpenTelemetry's Kafka exporter write them",
    )
    add_cluster_options(parser)
    parser.add_argument("--group", default="kclient-quota-receive", metavar="ID", help="default: %(default)s")
    parser.add_argument("--from-beginning", action="store_true", help="where this group has not read yet")
    parser.add_argument(
        "--idle-exit",
        type=seconds,
        metavar="SECONDS",
        help="end when all that was there is read and nothing has come for so long (default: never); exit status 1 "
        "when something of it was not handed on",
    )
    parser.add_argument("--metrics-port", type=port, metavar="PORT", help="a page for Prometheus (0: a free port)")
    parser.add_argument("--metrics-host", default=_HERE, metavar="HOST", help="default: %(default)s")
    parser.add_argument(
        "--limits",
        action="store_true",
        help="also what the cluster's quotas allow each client on that page; needs DescribeConfigs on the cluster",
    )
    parser.add_argument("--jsonl", type=Path, metavar="DIR", help="write JSON lines there")
    parser.add_argument("--parquet", type=Path, metavar="DIR", help="write Parquet files there")
    parser.add_argument("--json", action="store_true", help="print the counts at the end as JSON")
    add_otlp_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Receive until Ctrl-C or SIGTERM.

    Raises:
        ConfigError: an option cannot be used.
        ClusterError: the topic cannot be read.
    """
    if not (options.otlp or options.jsonl or options.parquet or options.metrics_port is not None):
        raise ConfigError("nowhere to put it: give --otlp, --metrics-port, --jsonl or --parquet")
    if options.limits and options.metrics_port is None:
        raise ConfigError("--limits is for the page: give --metrics-port, too")
    if options.metrics_host != _HERE and options.metrics_port is None:
        raise ConfigError("--metrics-host is the page's: give --metrics-port, too")
    from kclient_quota.operate.topic_receiver import TopicReceiver  # noqa: PLC0415 - slow to load for --help

    conf: dict[str, Any] = {
        "group.id": options.group,
        "client.id": "kclient-quota-receive",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    sinks, closers = _sinks(options)
    with stops_heard() as is_stopped:
        try:
            receivers: list[TopicReceiver] = []
            new_at_end = not options.from_beginning
            consumer, is_joined = subscribed(options, conf, is_stopped, receivers, new_at_end=new_at_end)
            notice("receiving; Ctrl-C stops")
            receiver = TopicReceiver(consumer, sinks, SYSTEM_CLOCK, is_joined)
            receivers.append(receiver)
            idle_ms = None if options.idle_exit is None else round(options.idle_exit * 1000)
            is_whole = False
            try:
                is_whole = receiver.run(is_stopped, idle_ms=idle_ms)
                if not (receiver.received.records or is_stopped()):
                    check_topic(consumer, options)
            finally:
                within_ms = _HURRY_MS if is_stopped() else _CLOSE_MS
                _close(closers, within_ms)
                closers = []
                left = receiver.left()  # sinks are closed: what they have not done with now they never will
                _leave(receiver, consumer, within_ms)
        finally:
            _close(closers, _HURRY_MS)
    if left:
        notice(f"{left} pushes were not handed on, they are read again next time")
    if refused := receiver.refused():
        notice(f"{refused} pushes are lost: the collector does not want them, or did not answer for a day")
    if points_refused := receiver.points_refused():
        notice(f"{points_refused} points are lost: the collector took their pushes, but does not want them")
    told = receiver.received
    counts = {
        "records": told.records,
        "pushes": told.pushes,
        "unreadable": told.unreadable,
        "not handed on": left,
        "refused": refused,
        "points refused": points_refused,
    }
    rows = {what.replace(" ", "_"): number for what, number in counts.items()}
    say(json.dumps(rows) if options.json else ", ".join(f"{number} {what}" for what, number in counts.items()))
    is_handed_on = not (receiver.lost() or refused or points_refused) and (is_stopped() or not left)
    return 0 if is_whole and is_handed_on else 1


def _close(closers: list[Any], within_ms: int) -> None:
    end_ms = SYSTEM_CLOCK.now_ms() + within_ms
    for close in closers:
        close(max(0, end_ms - SYSTEM_CLOCK.now_ms()))


def _leave(receiver: "TopicReceiver", consumer: "Consumer", within_ms: int) -> None:
    """Commit and go; a cluster that has fallen silent is not waited for, nor is a group that gives out partitions."""
    committed = threading.Event()

    def leave() -> None:
        receiver.finish()
        committed.set()
        consumer.close()

    leaving = threading.Thread(target=leave, daemon=True)
    leaving.start()
    leaving.join(within_ms / 1000)
    if not committed.is_set() and receiver.received.records:
        warn("the cluster does not answer: what was handed on may be read again next time")


def _sinks(options: argparse.Namespace) -> tuple["list[Sink]", list[Any]]:
    from kclient_telemetry.receiver import files  # noqa: PLC0415 - protobuf is slow to load for --help
    from kclient_telemetry.receiver.queued import QueuedSink  # noqa: PLC0415 - as above

    from kclient_quota.broker.command import exporters_of  # noqa: PLC0415 - as above
    from kclient_quota.broker.network.endpoints import address_of  # noqa: PLC0415 - as above
    from kclient_quota.operate.topic_receiver import Sink  # noqa: PLC0415 - as above

    sinks: list[Sink] = []
    closers: list[Any] = []
    try:
        for option, writer in (("jsonl", files.JsonLinesWriter), ("parquet", files.ParquetWriter)):
            directory = getattr(options, option)
            if directory is not None:
                files_of = _writer(option, writer, directory)
                queued = QueuedSink(files_of, goes_on=False)  # what comes behind is left, too
                waiting = partial(_waiting_to_be_written, queued, files_of)
                lost = partial(_not_written, queued, files_of)
                sinks.append(Sink(queued.accept, waiting, lost, complete=queued.complete))
                closers.append(queued.close)
        # behind the files, which are closed in this order: a collector that is away takes all the time that there is
        for exporter in exporters_of(options, give_up_after_ms=_GIVE_UP_MS):
            waiting, refused = partial(_waiting_to_export, exporter), partial(_refused, exporter)
            points_refused = partial(_points_refused, exporter)
            not_taken = partial(_not_taken, exporter)
            told = not_taken, refused, points_refused
            sinks.append(Sink(exporter.accept, waiting, *told, exporter.complete, is_remote=True))
            closers.append(exporter.close)
        if options.metrics_port is not None:
            endpoint = _endpoint(options, closers)
            sinks.append(Sink(endpoint.accept, partial(_waiting_for_the_page, endpoint)))
            closers.append(endpoint.close)
            say(f"metrics: http://{address_of(options.metrics_host, endpoint.port)}/metrics")
    except (OSError, OverflowError, MissingExtraError) as error:
        for close in closers:
            close(0)
        raise ConfigError(str(error)) from error
    except ConfigError:
        for close in closers:
            close(0)
        raise
    return sinks, closers


def _writer(
    option: str, writer: "type[JsonLinesWriter | ParquetWriter]", directory: Path
) -> "JsonLinesWriter | ParquetWriter":
    try:
        return writer(directory)
    except OSError as error:
        raise ConfigError(
            f"--{option} {directory}: {error.strerror}; name a directory that can be made and written to"
        ) from error


def _endpoint(options: argparse.Namespace, closers: list[Any]) -> "PrometheusEndpoint":
    from kclient_telemetry.receiver.endpoint import PrometheusEndpoint  # noqa: PLC0415 - slow to load for --help

    try:
        return PrometheusEndpoint(options.metrics_host, options.metrics_port, more=_limits(options, closers))
    except OSError as error:
        where = f"--metrics-host {options.metrics_host} --metrics-port {options.metrics_port}"
        remedy = "name an address of this machine and a port that is free (0: any)"
        raise ConfigError(f"{where}: {error.strerror}; {remedy}") from error


def _limits(options: argparse.Namespace, closers: list[Any]) -> "Callable[[list[Family]], list[Family]]":
    if not options.limits:
        return lambda families: []  # noqa: ARG005 - as the endpoint calls it
    from kclient_quota.admin.effective import EffectiveQuotas  # noqa: PLC0415 - slow to load for --help
    from kclient_quota.cluster.client import ClusterClient  # noqa: PLC0415 - as above
    from kclient_quota.cluster.quotas import describe_client_quotas  # noqa: PLC0415 - as above
    from kclient_quota.operate.limit_series import LimitSeries  # noqa: PLC0415 - as above

    # asked in a daemon's thread, where `QuotaAdmin` has one that is waited for
    client = ClusterClient(configuration(options), SYSTEM_CLOCK)
    timeout_ms = round(options.timeout * 1000)
    limits = LimitSeries(
        lambda: EffectiveQuotas(describe_client_quotas(client, timeout_ms=timeout_ms)), leave=client.close
    )
    closers.append(limits.close)
    return limits


def _waiting_to_export(exporter: "OtlpExporter") -> tuple[int, int]:
    counters = exporter.counters
    return counters.queued_pushes + counters.undelivered, counters.queued_bytes


def _not_taken(exporter: "OtlpExporter") -> int:
    return exporter.counters.dropped_queue_full


def _refused(exporter: "OtlpExporter") -> int:
    counters = exporter.counters
    return counters.dropped_refused + counters.dropped_expired - counters.undelivered


def _points_refused(exporter: "OtlpExporter") -> int:
    return exporter.counters.rejected_points


def _waiting_to_be_written(sink: "QueuedSink", files: "JsonLinesWriter | ParquetWriter") -> tuple[int, int]:
    """Also those in files that are not complete: whoever reads the directory passes these over."""
    counters = sink.counters
    queued = counters.received - counters.written - counters.failed - counters.dropped
    return queued + files.unfinished, sink.held_bytes


def _waiting_for_the_page(endpoint: "PrometheusEndpoint") -> tuple[int, int]:
    """None is read again for its sake: a page ends with its process, and would have them twice while it lives."""
    return 0, endpoint.held_bytes


def _not_written(sink: "QueuedSink", files: "JsonLinesWriter | ParquetWriter") -> int:
    return sink.counters.failed + sink.counters.dropped + files.lost
