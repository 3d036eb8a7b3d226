"""`kafka-quotas --list|--describe|--alter`: KIP-546's command as its draft has it."""

import argparse

from kclient_quota.admin.model import ClientQuotaFilter, ClientQuotaFilterComponent
from kclient_quota.admin.output import (
    describe_rows,
    describe_table,
    describe_text,
    entity_row,
    entity_text,
    list_rows,
    list_table,
    list_text,
)
from kclient_quota.admin.quotas import QuotaAdmin
from kclient_quota.admin.units import parse_quota
from kclient_quota.cli.printing import notice, rendered, say
from kclient_quota.cli.quota_options import (
    DONE,
    assignments,
    capacities,
    configuration,
    entity_names,
    one_entity,
    pairs,
    parts,
    unit_quotas,
)
from kclient_quota.errors import ConfigError

_EXCLUSIVE = {
    "prefix": "list",
    "include_overrides": "describe",
    "add": "alter",
    "delete": "alter",
    "validate_only": "alter",
    "capacity": "alter",
}


def run(options: argparse.Namespace) -> int:
    """List, describe or alter."""
    for name, mode in _EXCLUSIVE.items():
        if getattr(options, name) and not getattr(options, mode):
            raise ConfigError(f"--{name.replace('_', '-')} goes with --{mode} only")
    work = _list if options.list else _describe if options.describe else _alter
    with QuotaAdmin(configuration(options)) as admin:
        text = work(admin, options)
    if text:
        (say if options.alter else print)(text)
    elif not options.alter:
        notice("no quotas are configured here" if options.list else "no quota applies to this client")
    return DONE


def _list(admin: QuotaAdmin, options: argparse.Namespace) -> str:
    names = entity_names(options)
    components = [ClientQuotaFilterComponent.of_entity(kind, name) for kind, name in names.items()]
    for kind, prefix in pairs("--prefix", options.prefix).items():
        if kind in names:
            raise ConfigError(f"--prefix: {kind} is named already; give it one of the two")
        components.append(ClientQuotaFilterComponent.of_prefix(kind, prefix))
    listed = unit_quotas(admin, options).listed(ClientQuotaFilter.contains(components))
    return rendered(options.output, lambda: list_text(listed), lambda: list_table(listed), lambda: list_rows(listed))


def _describe(admin: QuotaAdmin, options: argparse.Namespace) -> str:
    entity = one_entity(options)
    found = unit_quotas(admin, options).describe(entity, include_overrides=options.include_overrides)
    return rendered(
        options.output, lambda: describe_text(found), lambda: describe_table(found), lambda: describe_rows(found)
    )


def _alter(admin: QuotaAdmin, options: argparse.Namespace) -> str:
    add = assignments(options.add)
    delete = {parse_quota(text) for text in parts(options.delete)}
    if not add and not delete:
        raise ConfigError("--alter needs --add name:unit=value, --delete name:unit, or both")
    both = sorted(delete & set(add))
    if both:
        raise ConfigError(f"{both[0]} is to be added and deleted; give it one of the two")
    entity = one_entity(options)
    changed = unit_quotas(admin, options).alter(
        entity, add, delete, capacity=capacities(options.capacity), validate_only=options.validate_only
    )
    done = "would be altered" if options.validate_only else "altered"
    notice(f"{done}: {', '.join(map(entity_text, changed)) or 'nothing, it is so already'}")
    rows = [{"entity": entity_row(each), "altered": not options.validate_only} for each in changed]
    return rendered(options.output, str, str, lambda: rows)
