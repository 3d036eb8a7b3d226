"""`kclient-quota top`: who is throttled now, in a terminal or as JSON."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from kclient_quota.cli.quantities import count, seconds
from kclient_quota.cli.quota_options import add_cluster_options, configuration
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.errors import ClusterError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kclient_telemetry.receiver.fanout import ReceivedPush

    from kclient_quota.operate.top import Sample, Top

_SORTS = ("throttle", "wait", "rate", "use", "lag", "client")
_URL_TIMEOUT_S = 10
_QUOTAS_MS = 30_000
_CLEAR = "\x1b[H\x1b[2J"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--from-topic", metavar="NAME", help="a topic of pushes, on the cluster")
    source.add_argument(
        "--prometheus",
        metavar="URL",
        help="the page of `receive --metrics-port`, such as http://127.0.0.1:9464/metrics",
    )
    add_cluster_options(parser)
    parser.add_argument("--sort", choices=_SORTS, default="throttle", help="default: %(default)s")
    parser.add_argument("--filter", default="", metavar="TEXT", help="clients whose client.id or user has this in it")
    parser.add_argument(
        "--limit", type=count, default=20, metavar="N", help="most clients shown (default: %(default)s)"
    )
    parser.add_argument("--interval", type=seconds, default=5.0, metavar="SECONDS", help="default: %(default)g")
    parser.add_argument("--once", action="store_true", help="look for one interval, print, end")
    parser.add_argument("--json", action="store_true", help="print rows as JSON, a line for each interval")


def run(options: argparse.Namespace) -> int:
    """Watch until Ctrl-C, or once.

    Raises:
        ConfigError: an option cannot be used.
        ClusterError: the source cannot be read.
    """
    from kclient_quota.operate.top import Top  # noqa: PLC0415 - slow to load for --help

    top = Top()
    look, close = _page(options.prometheus, top) if options.prometheus else _topic(options, top)
    quotas = _Quotas(options)
    try:
        while True:
            look(options.interval)
            _show(top, quotas, options)
            if options.once:
                return 0
    finally:
        quotas.close()
        close()


def _show(top: "Top", quotas: "_Quotas", options: argparse.Namespace) -> None:
    from kclient_quota.admin.output import table  # noqa: PLC0415 - as above
    from kclient_quota.operate.top import HEAD, cells  # noqa: PLC0415 - as above

    now_ms = _unix_ms()
    rows = top.rows(now_ms, sort=options.sort, wanted=options.filter, quotas=quotas.now())[: options.limit]
    if options.json:
        print(json.dumps([row.as_dict() for row in rows]), flush=True)
        return
    throttled = sum(row.is_throttled for row in rows)
    text = table(HEAD, cells(rows, now_ms)) if rows else "no client has pushed anything yet"
    screen = _CLEAR if sys.stdout.isatty() and not options.once else ""
    print(f"{screen}{len(rows)} clients, {throttled} held up by a quota\n\n{text}", flush=True)


class _Quotas:
    """The cluster's quotas, asked for again every half a minute; none without a cluster or without the right."""

    def __init__(self, options: argparse.Namespace) -> None:
        from kclient_quota.admin.quotas import QuotaAdmin  # noqa: PLC0415 - as above

        has_cluster = bool(options.bootstrap_server or options.command_config)
        self._admin = QuotaAdmin(configuration(options)) if has_cluster else None
        self._timeout_s = options.timeout
        self._index: Any = None
        self._asked_ms: int | None = None

    def now(self) -> Any:
        now_ms = SYSTEM_CLOCK.now_ms()
        if self._admin is not None and (self._asked_ms is None or now_ms - self._asked_ms >= _QUOTAS_MS):
            self._asked_ms = now_ms
            try:
                self._index = self._admin.index_client_quotas(request_timeout=self._timeout_s).result()
            except ClusterError as error:
                print(f"warning: limits are not known: {error}", file=sys.stderr)
        return self._index

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()


Source = tuple["Callable[[float], None]", "Callable[[], None]"]


def _topic(options: argparse.Namespace, top: "Top") -> Source:
    from kclient_quota.clients.consumer import Consumer  # noqa: PLC0415 - librdkafka is slow to load for --help
    from kclient_quota.operate.topic_receiver import Sink, TopicReceiver  # noqa: PLC0415 - as above

    conf = {
        **configuration(options),
        "group.id": f"kclient-quota-top-{_unix_ms()}",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest" if options.once else "latest",
        "enable.metrics.push": False,
    }
    consumer = Consumer(conf)
    consumer.subscribe([options.from_topic])

    def accept(push: "ReceivedPush") -> None:
        for sample in _samples(push):
            top.take(sample)

    receiver = TopicReceiver(consumer, [Sink(accept, lambda: (0, 0))], SYSTEM_CLOCK)

    def look(interval_s: float) -> None:
        end_ms = SYSTEM_CLOCK.now_ms() + round(interval_s * 1000)
        receiver.run(lambda: SYSTEM_CLOCK.now_ms() >= end_ms)

    return look, consumer.close


def _samples(push: "ReceivedPush") -> "Iterator[Sample]":
    from kclient_telemetry.receiver.rows import series_of, text_attributes  # noqa: PLC0415 - as above

    from kclient_quota.operate.top import Sample  # noqa: PLC0415 - as above

    who = push.attributes
    for series in series_of(push):
        yield Sample(
            who.get("client_instance_id", ""),
            who.get("client_id", ""),
            who.get("principal", "").removeprefix("User:"),
            series.metric.name,
            text_attributes(series.point.attributes),
            series.value,
            push.received_unix_ms,
            series.delta,
        )


def _page(url: str, top: "Top") -> Source:
    import urllib.request  # noqa: PLC0415 - loads TLS, slow for --help

    from kclient_quota.operate.top import Sample  # noqa: PLC0415 - as above

    try:
        from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise ConfigError("--prometheus needs prometheus_client: pip install 'kclient-quota[prometheus]'") from error
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"--prometheus {url}: write http://HOST:PORT/metrics")
    is_first = True

    def look(interval_s: float) -> None:
        nonlocal is_first
        if not is_first:
            SYSTEM_CLOCK.sleep_ms(round(interval_s * 1000))
        is_first = False
        try:
            with urllib.request.urlopen(url, timeout=_URL_TIMEOUT_S) as page:  # noqa: S310 - http and https only
                families = list(text_string_to_metric_families(page.read().decode()))
        except (OSError, ValueError) as error:  # URLError is an OSError
            raise ClusterError(f"--prometheus {url}: {error}") from error
        now_ms = _unix_ms()
        for family in families:
            for sample in family.samples:
                labels = sample.labels
                top.take(
                    Sample(
                        labels.get("client_instance_id", ""),
                        labels.get("client_id", ""),
                        labels.get("principal", "").removeprefix("User:"),
                        sample.name,
                        labels,
                        sample.value,
                        now_ms,
                    )
                )

    return look, lambda: None


def _unix_ms() -> int:
    import time  # noqa: PLC0415 - the wall clock, for what others have stamped with theirs

    return time.time_ns() // 1_000_000
