"""`kafka-quotas advise`: what a quota comes to, and which one to set."""

import argparse
import http.client
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kclient_quota.admin import capacity
from kclient_quota.admin.output import number, table
from kclient_quota.admin.quotas import QuotaAdmin
from kclient_quota.admin.usage import Usage, parse_usage, usage_of_rows
from kclient_quota.cli.printing import rendered
from kclient_quota.cli.quota_options import DONE, configuration
from kclient_quota.cluster.client import ClusterClient
from kclient_quota.cluster.configs import ResourceType, describe_configs, window_of
from kclient_quota.errors import ClusterError, ConfigError
from kclient_quota.wire.error_codes import error_name

_THREADS = ("num.io.threads", "num.network.threads")
_URL_TIMEOUT_S = 10


@dataclass(slots=True)
class _Setting:
    """What the arithmetic starts from, by hand or asked of a cluster."""

    leaders: tuple[int, ...]
    samples: int
    window_s: float
    io_threads: int
    network_threads: int

    @property
    def brokers(self) -> int:
        return len(self.leaders)

    @property
    def partitions(self) -> int:
        return sum(self.leaders)


def advise(options: argparse.Namespace) -> int:
    """Print the arithmetic."""
    if options.usage:
        return _from_usage(options)
    is_asked = bool(options.bootstrap_server or options.command_config)
    if options.topic and not is_asked:
        raise ConfigError(f"--topic {options.topic}: say where it is with --bootstrap-server")
    setting = _asked(options) if is_asked else _by_hand(options)
    rows = list(_rows(options, setting))
    lines = [(what, number(float(value)), unit) for what, value, unit in rows]
    print(
        rendered(
            options.output,
            lambda: "\n".join(f"{what}: {value}{unit}" for what, value, unit in lines),
            lambda: table(("WHAT", "VALUE", "UNIT"), [(what, value, unit.strip()) for what, value, unit in lines]),
            lambda: [{"what": what, "value": value, "unit": unit.strip()} for what, value, unit in rows],
        )
    )
    return DONE


def _rows(options: argparse.Namespace, setting: _Setting) -> Any:
    window: dict[str, Any] = {"samples": setting.samples, "window_s": setting.window_s}
    yield "brokers that lead partitions", sum(count > 0 for count in setting.leaders), ""
    yield "partitions", setting.partitions, ""
    if options.rate:
        quota = capacity.quota_for_rate(options.rate, setting.brokers, setting.partitions, clients=options.clients)
        yield f"quota at which each of {options.clients} gets {number(options.rate)} B/s", quota, " B/s per broker"
    if options.quota:
        yield from _of_quota(options, setting, window)
    if options.batch_bytes:
        smallest = capacity.smallest_consumer_quota(options.batch_bytes, **window)
        yield f"smallest consumer quota that delivers batches of {options.batch_bytes} B", smallest, " B/s per broker"
    ceiling = capacity.request_percentage_ceiling(setting.io_threads, setting.network_threads)
    yield "request_percentage of all threads, above which it limits nothing", ceiling, " %"


def _of_quota(options: argparse.Namespace, setting: _Setting, window: dict[str, Any]) -> Any:
    quota, leading = options.quota, sum(count > 0 for count in setting.leaders)
    whole = capacity.effective_rate(quota, leading, setting.partitions)
    yield "cluster gives all clients together at most", whole, " B/s"
    yield f"each of {options.clients} clients gets", whole / options.clients, " B/s"
    keyed = capacity.keyed_rate(quota, setting.leaders)
    if keyed < whole:
        yield "with keys over all partitions, held back by the busiest broker, together", keyed, " B/s"
    if options.other_topic_partitions:
        other = min(setting.brokers, options.other_topic_partitions)
        mixed = capacity.mixed_rate(quota, leading, other)
        yield "each of two topics under one client-id, as measured, about", mixed, " B/s"
    burst = capacity.burst(quota, **window)
    yield f"burst after {number(burst.window_s)} s of idleness without a throttle, per broker", burst.bytes, " B"
    yield "throttle after twice that burst", capacity.throttle_after(2 * burst.bytes, quota, **window), " s"
    yield "largest batch that is ever delivered to a consumer", capacity.largest_batch(quota, **window), " B"


def _by_hand(options: argparse.Namespace) -> _Setting:
    partitions = options.brokers if options.partitions is None else options.partitions
    leaders = capacity.even_leaders(options.brokers, partitions)
    return _Setting(leaders, options.window_num, options.window_seconds, options.io_threads, options.network_threads)


def _asked(options: argparse.Namespace) -> _Setting:
    if not options.topic:
        raise ConfigError("--topic is missing: name the topic whose leaders are to be counted")
    with QuotaAdmin(configuration(options)) as admin:
        metadata = admin.describe_cluster([options.topic], request_timeout=options.timeout).result()
        if options.topic in metadata.topic_errors:
            code = metadata.topic_errors[options.topic]
            raise ClusterError(f"topic {options.topic} was not described: {error_name(code)}", error_code=code)
        leaders = dict.fromkeys(metadata.brokers, 0)
        for leader in metadata.leaders.values():
            if leader in leaders:
                leaders[leader] += 1
        setting = _by_hand(options)
        setting.leaders = tuple(leaders.values())
        _ask_broker(admin.client, str(min(metadata.brokers)), setting, round(options.timeout * 1000))
    return setting


def _ask_broker(client: ClusterClient, broker: str, setting: _Setting, timeout_ms: int) -> None:
    """Window and threads of a broker; it may keep to itself what it likes."""
    entries = describe_configs(client, ResourceType.BROKER, broker, timeout_ms=timeout_ms)
    values = {name: entry.value for name, entry in entries.items()}
    window = window_of(values)
    if window:
        setting.samples, setting.window_s = window[0], window[1] / 1000
    threads = [values.get(name) for name in _THREADS]
    if all(threads):
        setting.io_threads, setting.network_threads = (int(count or 0) for count in threads)


def _from_usage(options: argparse.Namespace) -> int:
    advice = capacity.advise_from_usage(_usage_at(options.usage), headroom=options.headroom)
    cells = [(each.entity, number(float(round(each.peak))), str(each.quota)) for each in advice]
    shown = table(("ENTITY", "PEAK B/s PER BROKER", "QUOTA"), cells)
    rows = [{"entity": each.entity, "peak": each.peak, "quota": each.quota} for each in advice]
    print(rendered(options.output, lambda: shown, lambda: shown, lambda: rows))
    return DONE


def _usage_at(place: str) -> list[Usage]:
    if Path(place).is_dir() or place.endswith(".parquet"):
        return usage_of_rows(enumerate(_parquet_rows(place), start=1), place)
    return parse_usage(_text_of(place), place)


def _parquet_rows(place: str) -> list[dict[str, Any]]:
    """What the Spark job `usage` wrote."""
    try:
        import pyarrow.parquet as pq  # noqa: PLC0415 - an extra, and slow to load
    except ImportError as error:
        raise ConfigError("--usage of Parquet files needs pyarrow: pip install 'kclient-quota[parquet]'") from error
    try:
        files = sorted(Path(place).rglob("*.parquet")) if Path(place).is_dir() else [Path(place)]
        return [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise ConfigError(f"--usage {place}: {error}") from error


def _text_of(place: str) -> str:
    try:
        if place.startswith(("http://", "https://")):
            with urllib.request.urlopen(place, timeout=_URL_TIMEOUT_S) as page:  # noqa: S310 - http and https only
                return str(page.read().decode())
        return Path(place).read_text(encoding="utf-8")
    except (OSError, ValueError, http.client.HTTPException) as error:  # no URL, no text, or no page at all
        raise ConfigError(f"--usage {place}: {error}") from error
