"""`kafka-quotas configs`: quotas the way of Kafka's kafka-configs, options and output, for those who have scripts.

Quotas only: SCRAM credentials and the configuration of topics, brokers and groups are left to Kafka's own tool.
"""

import argparse
import json
import re
import sys
from decimal import Decimal

from kclient_telemetry.java import java_hash, spread

from kclient_quota.admin.model import (
    ClientQuotaAlteration,
    ClientQuotaAlterationOp,
    ClientQuotaFilter,
    ClientQuotaFilterComponent,
)
from kclient_quota.admin.output import entity_row
from kclient_quota.admin.quotas import QuotaAdmin, Quotas
from kclient_quota.cli.printing import notice, say
from kclient_quota.cli.quota_options import DONE, FAILED, configuration
from kclient_quota.config import quantity
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import CLIENT_ID, DEFAULT, IP, QUOTA_KEYS, USER, ClientQuotaEntity, Name

_TYPES = {"users": USER, "clients": CLIENT_ID, "ips": IP}
_WORDS = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}
_FLAGS = {"user": "users", "client": "clients", "ip": "ips"}
# Kafka's tool names the first entity in this order of its flags.
_DEFAULT_FLAGS = {"client": "clients", "user": "users", "ip": "ips"}
_BROKER_BUCKETS = 16
_PLAIN_FROM, _PLAIN_TO = Decimal("1e-3"), Decimal("1e7")


def run(options: argparse.Namespace) -> int:
    """Describe or alter."""
    entities = _entities(options)
    if options.describe and (options.add_config or options.delete_config):
        raise ConfigError("--add-config and --delete-config go with --alter only")
    with QuotaAdmin(configuration(options)) as admin:
        if options.describe:
            _print(_describe(admin, entities, options.timeout), as_json=options.json)
            return DONE
        return _alter(admin, entities, options)


def _entities(options: argparse.Namespace) -> list[tuple[str, Name | None]]:
    """Kafka's plural types and the names given to them, None for all; in the order in which its tool sees them."""
    names: list[Name] = list(options.entity_names)
    found: list[tuple[str, Name | None]] = [
        (kind, names[index] if index < len(names) else None) for index, kind in enumerate(options.entity_type)
    ]
    if len(names) > len(found):
        raise ConfigError("--entity-name and --entity-default need an --entity-type each, before them")
    found += [(kind, name) for flag, kind in _FLAGS.items() for name in getattr(options, flag)]
    found += [(kind, DEFAULT) for flag, kind in _DEFAULT_FLAGS.items() if getattr(options, f"{flag}_defaults")]
    if "" in [name for _, name in found]:
        raise ConfigError("an entity's name is empty; for whoever has none of their own give --entity-default")
    kinds = [kind for kind, _ in found]
    if not found:
        raise ConfigError("no entity is given: use --entity-type users|clients|ips, or --user, --client, --ip")
    if len(set(kinds)) < len(kinds):
        raise ConfigError(f"Duplicate entity type(s) specified: {','.join(kinds)}")
    return found


# -- describe


def _print(found: Quotas, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([{"entity": entity_row(each), "quotas": values} for each, values in found.items()], indent=2))
    else:
        for entity, values in found.items():
            print(f"Quota configs for {_words(entity)} are {_shown(values)}")
    if not found:
        notice("no quotas are configured for these entities")


def _describe(admin: QuotaAdmin, entities: list[tuple[str, Name | None]], timeout: float) -> Quotas:
    components = [
        ClientQuotaFilterComponent.of_entity_type(_TYPES[kind])
        if name is None
        else ClientQuotaFilterComponent.of_entity(_TYPES[kind], name)
        for kind, name in entities
    ]
    wanted = ClientQuotaFilter.contains_only(components)
    return admin.describe_client_quotas(wanted, request_timeout=timeout).result()


def _words(entity: ClientQuotaEntity) -> str:
    return ", ".join(
        f"the default {_WORDS[kind]}" if name is DEFAULT else f"{_WORDS[kind]} '{name}'"
        for kind in (USER, CLIENT_ID, IP)
        if (name := entity.entries.get(kind)) is not None
    )


def _shown(values: dict[str, float]) -> str:
    """Keys in the order of Kafka's tool, whose hash map is filled from the brokers' larger one."""
    size = 1 << (len(values) - 1).bit_length()
    buckets = size if len(values) <= size * 3 // 4 else size * 2
    order = sorted(values, key=lambda key: (_bucket(key, buckets), _bucket(key, _BROKER_BUCKETS)))
    return ", ".join(f"{key}={java_double(values[key])}" for key in order)


def _bucket(key: str, buckets: int) -> int:
    return spread(java_hash(key)) % buckets


def java_double(value: float) -> str:
    """`Double.toString`: plain from a thousandth to ten million, else with an exponent."""
    exact = Decimal(repr(value))
    if not exact.is_finite():
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), "NaN")
    if not exact or _PLAIN_FROM <= abs(exact) < _PLAIN_TO:
        text = format(exact, "f")
        return text if "." in text else f"{text}.0"
    sign, digits, _ = exact.as_tuple()
    figures = "".join(map(str, digits)).rstrip("0")
    return f"{'-' if sign else ''}{figures[0]}.{figures[1:] or '0'}E{exact.adjusted()}"


# -- alter


def _alter(admin: QuotaAdmin, entities: list[tuple[str, Name | None]], options: argparse.Namespace) -> int:
    add, delete = _additions(options.add_config), _keys(options.delete_config)
    if both := sorted(set(add) & set(delete)):
        raise ConfigError(f"{', '.join(both)}: add or delete it, not both")
    if not add and not delete:
        raise ConfigError("At least one of --add-config or --delete-config must be specified with --alter")
    if any(name is None for _, name in entities):
        raise ConfigError("an entity name or --entity-default must be specified with --alter of users, clients or ips")
    kind, name = entities[0]
    unknown = [key for key in (*add, *delete) if key not in QUOTA_KEYS]
    if unknown:
        said = f"Only quota configs can be added for '{kind}'. Unexpected config names: {','.join(unknown)}"
        return _failed(said)
    entity = ClientQuotaEntity({_TYPES[each]: one for each, one in entities})
    missing = sorted(set(delete) - set(_now(admin, entity, options.timeout)))
    if missing:
        return _failed(f"Invalid config(s): {','.join(missing)}")
    ops: dict[str, float | None] = {**add, **dict.fromkeys(delete)}
    alteration = ClientQuotaAlteration(entity, tuple(ClientQuotaAlterationOp(*op) for op in ops.items()))
    admin.alter_client_quotas([alteration], request_timeout=options.timeout).all().result()
    if options.json:
        say(json.dumps([{"entity": entity_row(entity), "altered": ops}], indent=2))
    elif isinstance(name, str):
        say(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        say(f"Completed updating default config for {kind} in the cluster.")
    return DONE


def _now(admin: QuotaAdmin, entity: ClientQuotaEntity, timeout: float) -> dict[str, float]:
    components = [ClientQuotaFilterComponent.of_entity(kind, name) for kind, name in entity.entries.items()]
    wanted = ClientQuotaFilter.contains_only(components)
    found: Quotas = admin.describe_client_quotas(wanted, request_timeout=timeout).result()
    return found.get(entity, {})


def _additions(text: str | None) -> dict[str, float]:
    found = {}
    for part in _parts(text):
        key, equals, value = part.partition("=")
        if not equals:
            raise ConfigError(f"--add-config {part}: write key=value")
        try:
            found[key.strip()] = _value(key.strip(), re.sub(r"^\[(.*)\]$", r"\1", value.strip()))
        except (ValueError, ConfigError):
            raise ConfigError(f"Cannot parse quota configuration value for {key}: {value}") from None
    return found


def _value(key: str, text: str) -> float:
    """As Java reads a double, and byte rates with units as well."""
    try:
        return float(text)
    except ValueError:
        if not key.endswith("_byte_rate"):
            raise
    return quantity(text)


def _keys(text: str | None) -> list[str]:
    return [part.strip() for part in _parts(text)]


def _parts(text: str | None) -> list[str]:
    return [part for part in (text or "").split(",") if part.strip()]


def _failed(words: str) -> int:
    print(f"Error while executing config command: {words}", file=sys.stderr)
    return FAILED
