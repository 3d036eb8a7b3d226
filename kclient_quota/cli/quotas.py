"""`kafka-quotas`: KIP-546's command as its draft has it, and quotas as code."""

import argparse
import sys

from kclient_quota import __version__
from kclient_quota.admin.applying import ConflictError
from kclient_quota.admin.model import ClientQuotaFilter, ClientQuotaFilterComponent
from kclient_quota.admin.output import describe_rows, describe_table, describe_text, list_rows, list_table, list_text
from kclient_quota.admin.quotas import QuotaAdmin
from kclient_quota.admin.units import parse_quota
from kclient_quota.cli.configs import add_configs
from kclient_quota.cli.printing import add_output_option, rendered
from kclient_quota.cli.quota_advice import add_advise
from kclient_quota.cli.quota_code import add_code_commands
from kclient_quota.cli.quota_options import (
    CONFLICT,
    DONE,
    EXIT_CODES,
    FAILED,
    WRONG,
    add_cluster_options,
    add_store_option,
    assignments,
    capacities,
    configuration,
    entity_names,
    one_entity,
    pairs,
    parts,
    unit_quotas,
)
from kclient_quota.errors import ConfigError, KclientQuotaError

COMMANDS = ("plan", "diff", "apply", "undo", "export", "reconcile", "advise", "configs")

_EXCLUSIVE = {
    "prefix": "list",
    "include_overrides": "describe",
    "add": "alter",
    "delete": "alter",
    "validate_only": "alter",
    "capacity": "alter",
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (the process's own when None).

    Returns:
        the exit status, see `EXIT_CODES`; 130 interrupted.
    """
    arguments = sys.argv[1:] if argv is None else argv
    try:
        if arguments and arguments[0] in COMMANDS:
            return _run_command(arguments)
        return _run(_parser().parse_args(arguments))
    except KclientQuotaError as error:
        print(f"kafka-quotas: {error}", file=sys.stderr)
        return CONFLICT if isinstance(error, ConflictError) else WRONG if isinstance(error, ConfigError) else FAILED
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever reads has seen enough
        sys.stderr.close()
        return DONE


def _run_command(arguments: list[str]) -> int:
    """One of the commands; with `--detailed-exitcode` whatever goes wrong is 1, as 2 has another meaning then."""
    is_detailed = "--detailed-exitcode" in arguments
    try:
        options = _command_parser().parse_args(arguments)
        return int(options.run(options))
    except KclientQuotaError as error:
        if not is_detailed:
            raise
        print(f"kafka-quotas: {error}", file=sys.stderr)
        return FAILED
    except SystemExit as ended:
        if is_detailed and ended.code:
            return FAILED
        raise


def _command_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kafka-quotas", description="Quotas as code, and what they come to.", epilog=EXIT_CODES
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_code_commands(commands)
    add_advise(commands)
    add_configs(commands)
    return parser


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kafka-quotas",
        description="Lists, resolves and alters client quotas (KIP-546). Names may hold anything: they are printed and "
        "may be given, percent-encoded.",
        epilog=f"Quotas as code: kafka-quotas {'|'.join(COMMANDS)} --help. {EXIT_CODES}",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    add_cluster_options(parser)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--list", action="store_true", help="what is configured; a type that is not named is a wildcard")
    mode.add_argument("--describe", action="store_true", help="what applies to a client, and which entry decided")
    mode.add_argument("--alter", action="store_true", help="add, change and remove quotas of one entity")
    parser.add_argument("--names", action="append", metavar="TYPE=NAME,...", help="entities by name")
    parser.add_argument("--defaults", action="append", metavar="TYPE,...", help="default entities of these types")
    add_output_option(parser)
    only = parser.add_argument_group("only with --list")
    only.add_argument("--prefix", action="append", metavar="TYPE=PREFIX,...", help="entities whose name begins so")
    only = parser.add_argument_group("only with --describe")
    only.add_argument("--include-overrides", action="store_true", help="overridden entries too, starred")
    only = parser.add_argument_group("only with --alter")
    only.add_argument("--add", action="append", metavar="NAME[:UNIT]=VALUE,...", help="quotas to add or change")
    only.add_argument("--delete", action="append", metavar="NAME[:UNIT],...", help="quotas to remove")
    only.add_argument("--validate-only", action="store_true", help="check, alter nothing")
    only.add_argument(
        "--capacity", action="append", metavar="[NAME=]VALUE,...", help="what one broker has, for shares of it"
    )
    add_store_option(parser)
    return parser


def _run(options: argparse.Namespace) -> int:
    for name, mode in _EXCLUSIVE.items():
        if getattr(options, name) and not getattr(options, mode):
            raise ConfigError(f"--{name.replace('_', '-')} goes with --{mode} only")
    run = _list if options.list else _describe if options.describe else _alter
    with QuotaAdmin(configuration(options)) as admin:
        text = run(admin, options)
    if text:
        print(text)
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
    unit_quotas(admin, options).alter(
        one_entity(options), add, delete, capacity=capacities(options.capacity), validate_only=options.validate_only
    )
    return ""


if __name__ == "__main__":
    sys.exit(main())
