"""`kclient-quota broker`, the same as `python -m kclient_quota.broker`: brokers on the command line until Ctrl-C."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kclient_telemetry.errors import MissingExtraError
from kclient_telemetry.receiver.otlp_options import add_otlp_arguments, otlp_settings

from kclient_quota.broker.collector import Collector
from kclient_quota.broker.manners import KAFKA, MANNERS
from kclient_quota.clock import SYSTEM_CLOCK
from kclient_quota.config import quantity
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import QUOTA_KEYS
from kclient_quota.stops import stops_heard

if TYPE_CHECKING:
    from kclient_telemetry.receiver.otlp_export import OtlpExporter

    from kclient_quota.broker.server import EmbeddedBroker

ValueT = TypeVar("ValueT")

_ENTITIES = {"user": "user", "client-id": "client_id", "ip": "ip"}
_DEFAULT_NAME = "<default>"
_LAST_PORT = 65_535
_LOOK_MS = 100
_EXPORT_TIMEOUT_MS = 700
"""How long whoever has pressed Ctrl-C waits for collectors."""
_MOST_BROKERS = 1_000
_PUSH_MS = 10_000
_PAIRS = (("fsync", "close", "data"), ("tls_port", 0, "tls_pem"), ("sasl_port", 0, "user"))
"""Options, their defaults, and what they say nothing without."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--brokers", type=int, default=1, metavar="N", help="how many brokers (default: %(default)s)")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; 0.0.0.0 for all, :: for IPv6 (default: %(default)s)"
    )
    parser.add_argument(
        "--advertised-host", metavar="HOST", help="what clients are told to connect to (default: --host)"
    )
    parser.add_argument(
        "--listener",
        action="append",
        metavar="NAME",
        choices=["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"],
        help="serve this listener; may be repeated (default: all that the other options allow, without PLAINTEXT where "
        "there are users)",
    )
    parser.add_argument(
        "--port", type=int, default=9092, help="of the first broker, the others follow; 0 for free ones (default: 9092)"
    )
    parser.add_argument(
        "--topic", action="append", default=[], metavar="NAME[:PARTITIONS]", help="create a topic; may be repeated"
    )
    parser.add_argument(
        "--quota",
        action="append",
        default=[],
        metavar="ENTITY,KEY=VALUE,...",
        help="set quotas, such as client-id=orders,producer_byte_rate=51200 or 'user=<default>,request_percentage=25'; "
        "may be repeated",
    )
    parser.add_argument(
        "--manner",
        choices=list(MANNERS),
        metavar="NAME",
        default=KAFKA.name,
        help="throttle as these brokers do: " + ", ".join(MANNERS) + " (default: %(default)s; managed: Kafka without "
        "access to quotas)",
    )
    parser.add_argument(
        "--user", action="append", default=[], metavar="NAME:PASSWORD", help="add a user for SASL; may be repeated"
    )
    parser.add_argument("--sasl-port", type=int, default=0, help="of the first broker's SASL_PLAINTEXT listener")
    parser.add_argument("--tls-pem", type=Path, metavar="FILE", help="certificate chain and key; adds a TLS listener")
    parser.add_argument(
        "--tls-port", type=int, default=0, help="of the first broker's TLS listener; with --user SASL_SSL's"
    )
    parser.add_argument("--data", type=_folder, metavar="DIR", help="keep everything there across restarts")
    parser.add_argument(
        "--fsync",
        default="close",
        metavar="WHEN",
        help="with --data: when the disk itself must have what was acknowledged: always (before), a number of "
        "milliseconds (at least so often), close (when the system likes, and at the end; default, as Kafka's)",
    )
    parser.add_argument(
        "--property", action="append", default=[], metavar="KEY=VALUE", help="Kafka's broker property; may be repeated"
    )
    parser.add_argument(
        "--faults",
        type=Path,
        metavar="FILE",
        help="YAML: what is to go wrong, such as {faults: [{delay_on: {api: Fetch, delay_ms: 200}}]}",
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="serve a Prometheus page there, of brokers' metrics and of what clients push (0: a free port)",
    )
    parser.add_argument(
        "--client-metrics-interval-ms",
        type=int,
        default=_PUSH_MS,
        metavar="MS",
        help="with --otlp or --metrics-port: how often every client shall push all its metrics (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="say where it listens as one line of JSON")
    add_otlp_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Run until Ctrl-C or SIGTERM.

    Raises:
        ConfigError: an option cannot be used.
    """
    from kclient_quota.broker.server import EmbeddedBroker  # noqa: PLC0415 - slow to load for --help

    _check(options)
    users = _once("--user", (_pair("--user", text, ":") for text in options.user))
    quotas = [_quota(text) for text in options.quota]
    _once("--quota", (pair for quota in quotas for pair in _limits_of(quota)))
    broker = EmbeddedBroker(
        brokers=options.brokers,
        topics=_once("--topic", map(_topic, options.topic)),
        ports=options.port,
        host=options.host,
        advertised_host=options.advertised_host,
        listeners=_listeners(options),
        properties=_once("--property", (_pair("--property", text, "=") for text in options.property)),
        users=users,
        tls_pem=options.tls_pem,
        tls_ports=options.tls_port,
        sasl_ports=options.sasl_port,
        data_dir=options.data,
        fsync=options.fsync,
        metrics_port=options.metrics_port,
        manner=options.manner,
        exporters=exporters_of(options),
    )
    collector = Collector()
    with stops_heard() as is_stopped:
        collector.begin()
        try:
            with broker:
                if options.faults is not None:
                    broker.faults.load(_faults(options.faults))
                for quota in quotas:
                    broker.set_quota(**quota)
                if options.otlp or options.metrics_port is not None:
                    broker.set_client_metrics("everything", interval_ms=options.client_metrics_interval_ms)
                _say(broker, options)
                while not is_stopped():
                    SYSTEM_CLOCK.sleep_ms(_LOOK_MS)
                broker.close(_EXPORT_TIMEOUT_MS)
        finally:
            collector.end()
    return 0


def main(argv: list[str] | None = None) -> int:
    """Parse `argv` and run; a wrong option is one line on standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m kclient_quota.broker", description="Kafka brokers that enforce quotas, for tests and demos."
    )
    add_arguments(parser)
    try:
        return run(parser.parse_args(argv))
    except (ConfigError, OSError, OverflowError) as error:
        sys.stderr.write(f"{parser.prog}: {error}\n")
        return 2 if isinstance(error, ConfigError) else 1


def _check(options: argparse.Namespace) -> None:
    """What argparse cannot say better, since several options are of one kind."""
    if options.brokers not in range(1, _MOST_BROKERS + 1):
        raise ConfigError(f"--brokers {options.brokers}: write a number from 1 to {_MOST_BROKERS}")
    if not options.host:  # a script's variable that was never set; sockets would take it for every address
        raise ConfigError("--host is empty: name an address, 0.0.0.0 for all")
    for name in ("port", "sasl_port", "tls_port", "metrics_port"):
        number = getattr(options, name)
        last = (number or 0) + (options.brokers - 1 if number and name != "metrics_port" else 0)
        if number is not None and not 0 <= number <= last <= _LAST_PORT:
            highest = _LAST_PORT - max(0, last - number)
            raise ConfigError(f"--{name.replace('_', '-')} {number}: write a port from 0 to {highest}")
    if options.client_metrics_interval_ms < 1:
        raise ConfigError(f"--client-metrics-interval-ms {options.client_metrics_interval_ms}: write milliseconds")
    if options.client_metrics_interval_ms != _PUSH_MS and not options.otlp and options.metrics_port is None:
        raise ConfigError("--client-metrics-interval-ms says nothing without --otlp or --metrics-port: add one of them")
    for name, default, other in _PAIRS:
        given = getattr(options, name)
        if given != default and not getattr(options, other):
            option, needed = (f"--{one.replace('_', '-')}" for one in (name, other))
            raise ConfigError(f"{option} {given} says nothing without {needed}: add that, or leave {option} out")


def _say(broker: "EmbeddedBroker", options: argparse.Namespace) -> None:
    if options.json:
        listeners = {name: broker.bootstrap_servers_of(name) for name in broker.listeners}
        found = {"bootstrap.servers": broker.bootstrap_servers, "listeners": listeners}
        if options.metrics_port is not None:
            found["metrics"] = broker.metrics_url
        print(json.dumps(found), flush=True)  # noqa: T201 - a write would need a standard output
        return
    lines = [f"bootstrap.servers={broker.bootstrap_servers}"]
    lines += [
        f"{name}: bootstrap.servers={broker.bootstrap_servers_of(name)}"
        for name in broker.listeners
        if name != "PLAINTEXT"
    ]
    if options.metrics_port is not None:
        lines.append(f"metrics: {broker.metrics_url}")
    print("\n".join([*lines, "Ctrl-C stops"]), flush=True)  # noqa: T201 - as above


def _listeners(options: argparse.Namespace) -> list[str] | None:
    """Which listeners to serve; users secure nothing as long as there is a way in without them."""
    if options.listener or not options.user:
        return options.listener or None
    return ["SASL_SSL", "SASL_PLAINTEXT"] if options.tls_pem else ["SASL_PLAINTEXT"]


def _topic(text: str) -> tuple[str, int]:
    name, colon, partitions = text.partition(":")
    if colon and not partitions.isdecimal():
        raise ConfigError(f"--topic {text}: the number of partitions must be a number, as in orders:4")
    return name, int(partitions or 1)


def _pair(option: str, text: str, separator: str) -> tuple[str, str]:
    key, found, value = text.partition(separator)
    if not key or not found:
        raise ConfigError(f"{option} {text}: write it as NAME{separator}VALUE")
    return key, value


def _once(option: str, pairs: Iterable[tuple[str, ValueT]]) -> dict[str, ValueT]:
    found: dict[str, ValueT] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise ConfigError(f"{option}: {name} is named twice, and not alike; name it once")
    return found


def _folder(text: str) -> Path:
    if not text:  # a script's variable that was never set; `Path` would take it for this folder
        raise argparse.ArgumentTypeError("it is empty; name a folder, . for this one")
    return Path(text)


def exporters_of(options: argparse.Namespace, give_up_after_ms: int = 300_000) -> "list[OtlpExporter]":
    """An exporter for each `--otlp`.

    Args:
        options: with those of `add_otlp_arguments`.
        give_up_after_ms: a batch that could not be exported for so long is dropped and counted.

    Raises:
        ConfigError: an option, a variable of the environment or a file cannot be used.
    """
    if not options.otlp:
        for name in ("otlp_header", "otlp_ca", "otlp_certificate", "otlp_key"):
            if getattr(options, name):
                option = f"--{name.replace('_', '-')}"
                raise ConfigError(f"{option} says nothing without --otlp: add that, or leave {option} out")
        return []
    # protobuf, and for gRPC a library that starts threads, are loaded by those who forward telemetry only
    from kclient_telemetry.receiver.otlp_export import OtlpExporter  # noqa: PLC0415

    try:
        return [
            OtlpExporter(settings.sender(), give_up_after_ms=give_up_after_ms, name=settings.address)
            for settings in otlp_settings(options, os.environ)
        ]
    except OSError as error:
        where = "--otlp-ca, --otlp-certificate, --otlp-key, or OTEL_EXPORTER_OTLP_* in their place"
        raise ConfigError(f"{where}: {error}; name PEM files that can be read") from error
    except ValueError as error:
        raise ConfigError(str(error)) from error
    except MissingExtraError as error:
        raise ConfigError(f"--otlp: {error}") from error


def _faults(path: Path) -> Mapping[str, Any]:
    # only those who ask for faults in a file need YAML
    import yaml  # noqa: PLC0415

    try:
        described = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:  # no file, no text, a date that there is not, no YAML
        raise ConfigError(f"--faults {path}: {error}") from error
    if not isinstance(described, Mapping):
        raise ConfigError(f"--faults {path}: write a mapping with seed and faults")
    return described


def _limits_of(quota: Mapping[str, Any]) -> list[tuple[str, float]]:
    entity = ", ".join(f"{kind}={name}" for kind, name in sorted(quota.items()) if kind not in QUOTA_KEYS)
    return [(f"{key} of {entity}", value) for key, value in quota.items() if key in QUOTA_KEYS]


def _quota(text: str) -> dict[str, Any]:
    """What `set_quota` takes."""
    entity: dict[str, Any] = {}
    limits: dict[str, float] = {}
    seen: set[str] = set()
    for part in text.split(","):
        key, value = _pair("--quota", part, "=")
        if key in seen:
            raise ConfigError(f"--quota {text}: {key} stands in it twice; write another --quota for each")
        seen.add(key)
        if key in _ENTITIES:
            if value == _DEFAULT_NAME:
                entity[f"default_{_ENTITIES[key]}"] = True
            else:
                entity[_ENTITIES[key]] = value
        elif key in QUOTA_KEYS:
            limits[key] = _limit(text, key, value)
        else:
            raise ConfigError(f"--quota {text}: {key} is neither an entity ({', '.join(_ENTITIES)}) nor a quota")
    if not limits:
        raise ConfigError(f"--quota {text}: there is no quota in it; add one, such as producer_byte_rate=51200")
    return {**entity, **limits}


def _limit(text: str, key: str, value: str) -> float:
    try:
        return quantity(value) if key.endswith("_byte_rate") else float(value)
    except ValueError:
        raise ConfigError(f"--quota {text}: the value of {key} must be a number, such as 51200 or 50kB") from None
