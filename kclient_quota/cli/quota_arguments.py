"""The options of `kafka-quotas`. What carries a command out is loaded when it is called, so that `--help` is quick."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kclient_quota import __version__
from kclient_quota.admin.capacity import DEFAULT_SAMPLES, DEFAULT_WINDOW_S
from kclient_quota.cli.completion import add_completion
from kclient_quota.cli.printing import add_output_option
from kclient_quota.cli.quantities import count, rate, seconds, size
from kclient_quota.cli.quota_options import EXIT_CODES, add_cluster_options, add_store_option
from kclient_quota.quota.entity import DEFAULT

COMMANDS = ("plan", "diff", "apply", "undo", "export", "reconcile", "advise", "configs", "completion")
MODES = ("list", "describe", "alter")
_DOCUMENTS = ("text", "json", "yaml")


def _draft(options: argparse.Namespace) -> int:
    from kclient_quota.cli import quota_draft

    return quota_draft.run(options)


def _code(name: str) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        from kclient_quota.cli import quota_code

        return int(getattr(quota_code, name)(options))

    return run


def _advise(options: argparse.Namespace) -> int:
    from kclient_quota.cli import quota_advice

    return quota_advice.advise(options)


def _configs(options: argparse.Namespace) -> int:
    from kclient_quota.cli import configs

    return configs.run(options)


def command_parser() -> argparse.ArgumentParser:
    """The parser of the commands."""
    parser = argparse.ArgumentParser(
        prog="kafka-quotas", description="Quotas as code, and what they come to.", epilog=EXIT_CODES
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_code_commands(commands)
    add_advise(commands)
    add_configs(commands)
    add_completion(commands, lambda: (command_parser(), draft_parser()))
    for known in commands.choices.values():
        known.add_argument("--version", action="version", version=f"kafka-quotas {__version__}", help=argparse.SUPPRESS)
    return parser


def draft_parser() -> argparse.ArgumentParser:
    """The parser of the draft's options."""
    parser = argparse.ArgumentParser(
        prog="kafka-quotas",
        usage="%(prog)s --list|--describe|--alter [options]\n       %(prog)s COMMAND [options]",
        description="Lists, resolves and alters client quotas (KIP-546). Names may hold anything: they are printed and "
        "may be given, percent-encoded. Rates may have units: 10MB, 1MiB/s.",
        epilog=f"Commands: {', '.join(COMMANDS)}; see kafka-quotas COMMAND --help. {EXIT_CODES}",
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
    parser.set_defaults(run=_draft)
    return parser


def add_code_commands(commands: Any) -> None:
    """Add the commands to a parser's subparsers."""
    plan = _command(commands, "plan", "what applying a file would change, also for those who are held to it")
    plan.add_argument("--out", type=Path, metavar="PLAN.json", help="keep the plan for `apply --plan`")
    diff = _command(commands, "diff", "lines that differ between the cluster and a file; exit status 4 if any do")
    apply = _command(commands, "apply", "make the cluster what a file says; run again, it does nothing")
    apply.add_argument("--plan", type=Path, metavar="PLAN.json", help="refuse to do anything but this plan")
    apply.add_argument("--validate-only", action="store_true", help="ask the brokers whether they would, do nothing")
    reconcile = _command(
        commands, "reconcile", "work bps and shares out anew for the brokers and leaders of now", is_file_optional=True
    )
    reconcile.add_argument("--dry-run", action="store_true", help="only print what would be written")
    for parser in (plan, diff):
        parser.add_argument(
            "--detailed-exitcode",
            action="store_true",
            help="exit status as terraform's: 0 nothing to do, 1 whatever went wrong, 2 there is something to do",
        )
    for parser in (apply, reconcile):
        parser.add_argument(
            "--journal", type=Path, metavar="FILE", help="default: quotas.CLUSTER.journal beside the file"
        )
    for parser in (plan, diff, apply):
        parser.add_argument("--prune", action="store_true", help="remove what the file does not set, everywhere")
        parser.add_argument(
            "--allow-empty", action="store_true", help="with --prune, also when the file sets nothing at all"
        )
    for parser in (plan, diff, apply, reconcile):
        add_output_option(parser, _DOCUMENTS)
    for parser, name in ((plan, "plan"), (diff, "diff"), (apply, "apply"), (reconcile, "reconcile")):
        parser.set_defaults(run=_code(name))
    undo = commands.add_parser(
        "undo",
        help="take back the last run of `apply` that a journal has",
        description="Takes back what a run may have altered, and nothing else. What fails half-way goes on with the "
        "same run when it is called again.",
        epilog=EXIT_CODES,
    )
    where = undo.add_mutually_exclusive_group()
    where.add_argument("--journal", type=Path, metavar="FILE", dest="journal_file", help="as of `apply`")
    where.add_argument(
        "journal",
        type=Path,
        metavar="JOURNAL",
        nargs="?",
        default=Path(),
        help="a journal, the file of quotas whose last run it is, or the folder where the journal lies (default: this "
        "folder)",
    )
    undo.add_argument("--run", type=int, metavar="N", dest="number", help="this run (default: the last that stands)")
    add_output_option(undo, _DOCUMENTS)
    undo.set_defaults(run=_code("undo"))
    for parser in (apply, undo):
        parser.add_argument("--yes", "-y", action="store_true", help="do not ask; needed for removals by a script")
    export = commands.add_parser("export", help="print a file that says what is configured", epilog=EXIT_CODES)
    export.add_argument("--json", action="store_true", help="a file in JSON, which the commands read as well")
    export.set_defaults(run=_code("export"))
    for parser in (undo, export):
        add_cluster_options(parser)
        add_store_option(parser)


def _command(commands: Any, name: str, what: str, *, is_file_optional: bool = False) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=what, description=what, epilog=EXIT_CODES)
    if is_file_optional:
        parser.add_argument(
            "file",
            type=Path,
            metavar="FILE.yaml",
            nargs="?",
            help="- is standard input; default: the units store alone",
        )
    else:
        parser.add_argument("file", type=Path, metavar="FILE.yaml", help="- is standard input")
    add_cluster_options(parser)
    add_store_option(parser)
    return parser


def add_advise(commands: Any) -> None:
    """Add the command to a parser's subparsers."""
    parser = commands.add_parser(
        "advise",
        help="what a quota comes to for each client and the cluster, and which one to set",
        description="Arithmetic of quotas. Brokers, partitions, window and threads are asked of the cluster with "
        "--bootstrap-server and --topic, else taken from the options. All rates are bytes per second.",
        epilog=EXIT_CODES,
    )
    add_cluster_options(parser)
    parser.add_argument("--topic", help="with --bootstrap-server: count this topic's leaders")
    parser.add_argument("--brokers", type=count, default=1, metavar="X", help="default: %(default)s")
    parser.add_argument("--partitions", type=count, metavar="Y", help="of the topic; default: one for each broker")
    parser.add_argument("--clients", type=count, default=1, metavar="M", help="that share the quota (default: 1)")
    parser.add_argument("--quota", type=rate, metavar="N", help="of one broker")
    parser.add_argument("--rate", type=rate, help="what each client shall get: which quota is that?")
    parser.add_argument("--batch-bytes", type=size, metavar="B", help="largest batch, as it is stored")
    parser.add_argument(
        "--other-topic-partitions", type=count, metavar="Y2", help="a second topic under the same client-id"
    )
    parser.add_argument("--window-num", type=count, default=DEFAULT_SAMPLES, help="quota.window.num (11)")
    parser.add_argument("--window-seconds", type=seconds, default=DEFAULT_WINDOW_S, help="its size (1)")
    parser.add_argument("--io-threads", type=count, default=8, help="num.io.threads (8)")
    parser.add_argument("--network-threads", type=count, default=3, help="num.network.threads (3)")
    parser.add_argument(
        "--usage",
        metavar="FILE|DIR|URL",
        help="measured rates: output of `kclient-quota pipeline usage` (Parquet), JSON lines, CSV, a Prometheus page",
    )
    parser.add_argument("--headroom", type=rate, default=0.25, help="over the peak (default: %(default)g)")
    add_output_option(parser)
    parser.set_defaults(run=_advise)


def add_configs(commands: Any) -> None:
    """Add the command to a parser's subparsers."""
    parser = commands.add_parser(
        "configs",
        help="describe and alter quotas with the options of Kafka's kafka-configs",
        description="Quotas the way of Kafka's kafka-configs, options and output, for those who have scripts.",
        epilog=EXIT_CODES,
    )
    add_cluster_options(parser)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--describe", action="store_true")
    mode.add_argument("--alter", action="store_true")
    parser.add_argument("--entity-type", action="append", default=[], choices=("users", "clients", "ips"))
    parser.add_argument("--entity-name", action="append", dest="entity_names", default=[], metavar="NAME")
    parser.add_argument("--entity-default", action="append_const", dest="entity_names", const=DEFAULT)
    for flag in ("user", "client", "ip"):
        parser.add_argument(f"--{flag}", action="append", default=[], metavar="NAME")
        parser.add_argument(f"--{flag}-defaults", action="store_true")
    parser.add_argument("--add-config", metavar="KEY=VALUE,...", help="with --alter; rates may have units, as 10MB")
    parser.add_argument("--delete-config", metavar="KEY,...", help="with --alter")
    parser.add_argument("--json", action="store_true", help="print what is described or altered as JSON")
    parser.set_defaults(run=_configs)
