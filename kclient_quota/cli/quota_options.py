"""Options that the quota commands share, and what they mean."""

import argparse
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kclient_quota.admin.units import SHARES, UNITS, QuotaUnit, parse_quota, parse_value
from kclient_quota.cli.printing import warn
from kclient_quota.cli.properties import read_command_config
from kclient_quota.cli.quantities import seconds, servers
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import CLIENT_ID, DEFAULT, ClientQuotaEntity, Name, desanitize, name_problem, sanitize

if TYPE_CHECKING:
    from kclient_quota.admin.quotas import QuotaAdmin
    from kclient_quota.admin.unit_quotas import UnitQuotas

DONE, FAILED, WRONG, CONFLICT, DIFFERENT = 0, 1, 2, 3, 4
EXIT_CODES = (
    "exit status: 0 done; 1 the cluster refused, did not answer, or did half (the message says which); 2 wrong options "
    "or file; 3 somebody changed quotas meanwhile, nothing was overwritten; 4 diff: there are differences; plan and "
    "diff with --detailed-exitcode: 0 nothing to do, 1 whatever went wrong, 2 there is something to do"
)


def add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """`--bootstrap-server` and `--command-config`, as of Kafka's tools."""
    parser.add_argument(
        "--bootstrap-server", type=servers, metavar="HOST:PORT", help="the cluster, or several of its brokers"
    )
    parser.add_argument(
        "--command-config", type=Path, metavar="FILE", help="properties for the connection, as Kafka's tools take them"
    )
    parser.add_argument(
        "--timeout", type=seconds, default=30.0, metavar="SECONDS", help="for each request (default: %(default)g)"
    )


def add_store_option(parser: argparse.ArgumentParser) -> None:
    """`--units-store`."""
    parser.add_argument(
        "--units-store",
        default="topic",
        metavar="topic|none|FILE",
        help="where values in bps and shares live, which brokers cannot keep: a compacted topic of the cluster "
        "(default), nowhere, or a file",
    )


def configuration(options: argparse.Namespace) -> dict[str, Any]:
    """The client configuration of these options.

    Raises:
        ConfigError: they name no cluster, or the file cannot be used.
    """
    conf = read_command_config(options.command_config) if options.command_config else {}
    if options.bootstrap_server:
        conf["bootstrap.servers"] = options.bootstrap_server
    if not conf.get("bootstrap.servers"):
        raise ConfigError("--bootstrap-server is missing: name a broker as HOST:PORT")
    conf.setdefault("client.id", "kafka-quotas")
    return conf


def unit_quotas(admin: "QuotaAdmin", options: argparse.Namespace) -> "UnitQuotas":
    """Quotas in any unit, with the store that the options name."""
    from kclient_quota.admin.sources import FileStore, NoStore, SourceStore  # noqa: PLC0415 - slow to load for --help
    from kclient_quota.admin.topic_store import TopicStore  # noqa: PLC0415 - as above
    from kclient_quota.admin.unit_quotas import UnitQuotas  # noqa: PLC0415 - as above
    from kclient_quota.clock import SYSTEM_CLOCK  # noqa: PLC0415 - as above

    store: SourceStore
    if options.units_store == "none":
        store = NoStore()
    elif options.units_store == "topic":
        store = TopicStore(admin.client, SYSTEM_CLOCK, timeout_ms=round(options.timeout * 1000))
    else:
        store = FileStore(Path(options.units_store))
    return UnitQuotas(admin, store, request_timeout=options.timeout, say=warn)


def parts(texts: Iterable[str] | None) -> list[str]:
    """Elements of comma-separated lists, each of which may be given several times."""
    return [part for text in texts or () for part in re.split(r",", text) if part]


def pairs(option: str, texts: Iterable[str] | None) -> dict[str, str]:
    """Types and names of `--names` and `--prefix`; names may be sanitized, as they are printed.

    Raises:
        ConfigError: an element is no `type=name`, or a type comes twice.
    """
    found: dict[str, str] = {}
    for part in parts(texts):
        kind, equals, name = part.partition("=")
        if not (equals and kind and name):
            raise ConfigError(f"{option} {part}: write type=name, such as {CLIENT_ID}=app")
        if kind in found:
            raise ConfigError(f"{option}: {kind} stands in it twice")
        if option == "--names" and name == DEFAULT.value:
            raise ConfigError(
                f"{option} {part}: for whoever has no entry of their own give --defaults {kind}; "
                f"if {name} is really a name, write {kind}={sanitize(name)}"
            )
        try:
            found[kind] = desanitize(name)
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"{option} {part}: what is written with % is no UTF-8; write a percent sign as %25"
            ) from error
        if problem := name_problem(kind, found[kind]):
            raise ConfigError(f"{option} {problem}")
    return found


def entity_names(options: argparse.Namespace) -> dict[str, Name]:
    """Names and defaults by type.

    Raises:
        ConfigError: a type has both, or an element cannot be read.
    """
    names: dict[str, Name] = dict(pairs("--names", options.names))
    for kind in parts(options.defaults):
        if kind in names:
            raise ConfigError(f"--defaults: {kind} has a name already; give it one of the two")
        if "=" in kind:
            raise ConfigError(f"--defaults {kind}: write only types, such as user,{CLIENT_ID}")
        names[kind] = DEFAULT
    return names


def one_entity(options: argparse.Namespace) -> ClientQuotaEntity:
    """The entity that the options name.

    Raises:
        ConfigError: they name none.
    """
    names = entity_names(options)
    if not names:
        raise ConfigError("no entity is named: give --names type=name, --defaults type, or both")
    return ClientQuotaEntity({kind: names[kind] for kind in sorted(names, key=lambda kind: kind == CLIENT_ID)})


def assignments(texts: Iterable[str] | None) -> dict[QuotaUnit, float]:
    """`name[:unit]=value,...`.

    Raises:
        ConfigError: an element cannot be read, or comes twice.
    """
    found: dict[QuotaUnit, float] = {}
    for part in parts(texts):
        name, equals, text = part.partition("=")
        if not equals:
            raise ConfigError(f"--add {part}: write name:unit=value")
        quota = parse_quota(name)
        if quota in found:
            raise ConfigError(f"--add: {quota} stands in it twice")
        found[quota] = parse_value(quota, text)
    return found


def capacities(texts: Iterable[str] | None) -> dict[str, float]:
    """`NUMBER` for both byte rates, or `name=NUMBER,...`.

    Raises:
        ConfigError: an element cannot be read, or comes twice.
    """
    found: dict[str, float] = {}
    seen: set[str] = set()
    for part in parts(texts):
        name, equals, text = part.rpartition("=")
        if name in seen:
            raise ConfigError(f"--capacity {part}: {name or 'one of all'} stands in it twice")
        seen.add(name)
        keys = [name] if equals else [key for key, units in UNITS.items() if "bps" in units]
        for key in keys:
            if SHARES not in UNITS.get(key, ()):
                shareable = ", ".join(known for known, units in UNITS.items() if SHARES in units)
                raise ConfigError(f"--capacity {part}: {key} cannot be shared out; these can: {shareable}")
            found[key] = parse_value(QuotaUnit(key, SHARES), text)
    return found
