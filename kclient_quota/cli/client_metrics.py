"""`kafka-client-metrics`: client-metrics subscriptions (KIP-714), with Kafka's own options and output."""

import argparse
import base64
import sys
import uuid
from pathlib import Path

from kclient_quota import __version__
from kclient_quota.admin.client_metrics import INTERVAL_MS, MATCH, METRICS, ClientMetricsSubscription
from kclient_quota.admin.quotas import QuotaAdmin
from kclient_quota.cli.properties import read_command_config
from kclient_quota.errors import KclientQuotaError

_ACTIONS = ("alter", "delete", "describe", "list")
_VALUES = {"interval": INTERVAL_MS, "match": MATCH, "metrics": METRICS}


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (the process's own when None).

    Returns:
        the exit status: 0 done, 1 refused or wrong options (as Kafka's tool has it), 130 interrupted.
    """
    parser = _parser()
    options = parser.parse_args(argv)
    problem = _problem(options)
    if problem:
        parser.print_usage(sys.stderr)
        print(problem, file=sys.stderr)
        return 1
    try:
        conf = read_command_config(options.command_config) if options.command_config else {}
        conf["bootstrap.servers"] = options.bootstrap_server
        with QuotaAdmin(conf) as admin:
            _run(admin, options)
    except KclientQuotaError as error:
        print(f"Error while executing client metrics command : {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kafka-client-metrics",
        description="This tool helps to manipulate and describe client metrics configurations.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("--bootstrap-server", required=True, metavar="HOST:PORT", help="the cluster")
    parser.add_argument("--command-config", type=Path, metavar="FILE", help="properties, as Kafka's tools take them")
    parser.add_argument("--alter", action="store_true", help="create a subscription, or change it")
    parser.add_argument("--delete", action="store_true", help="delete a subscription")
    parser.add_argument("--describe", action="store_true", help="print one subscription, or all of them")
    parser.add_argument("--list", action="store_true", help="print the names of all subscriptions")
    parser.add_argument("--name", help="the subscription's name")
    parser.add_argument("--generate-name", action="store_true", help="with --alter: a random name")
    parser.add_argument("--interval", help="milliseconds between pushes; empty resets it")
    parser.add_argument("--match", help="comma-separated key=pattern pairs; empty resets it: every client")
    parser.add_argument("--metrics", help="comma-separated beginnings of names; empty resets it: no metric")
    return parser


def _problem(options: argparse.Namespace) -> str | None:
    """What Kafka's tool would refuse, in its words."""
    if sum(getattr(options, action) for action in _ACTIONS) != 1:
        return "Command must include exactly one action: --alter, --delete, --describe or --list."
    if options.alter and (options.name is None) != options.generate_name:
        return "One of --name or --generate-name must be specified with --alter."
    if options.delete and options.name is None:
        return "A client metrics resource name must be specified with --delete."
    if options.generate_name and not options.alter:
        return 'Option "[generate-name]" can only be used with --alter.'
    if options.interval and not options.interval.isdecimal():
        return f"--interval {options.interval}: a number of milliseconds is wanted"
    return None


def _run(admin: QuotaAdmin, options: argparse.Namespace) -> None:
    if options.list:
        print("\n".join(admin.list_client_metrics_subscriptions().result()))
    elif options.describe:
        _describe(admin, options.name)
    elif options.delete:
        admin.delete_client_metrics_subscription(options.name).result()
        print(f"Deleted client metrics config for {options.name}.")
    else:
        name = options.name or _random_name()
        given = {key: getattr(options, option) for option, key in _VALUES.items()}
        values = {key: value or None for key, value in given.items() if value is not None}
        admin.alter_client_metrics_subscription(name, values).result()
        print(f"Altered client metrics config for {name}.")


def _describe(admin: QuotaAdmin, name: str | None) -> None:
    names = admin.list_client_metrics_subscriptions().result() if name is None else [name]
    for each in names:
        found = admin.describe_client_metrics_subscription(each).result()
        if found is None:
            print(f"The client metric resource {each} doesn't exist and doesn't have dynamic config.")
        else:
            _print(found)


def _print(found: ClientMetricsSubscription) -> None:
    print(f"Client metrics configs for {found.name} are:")
    print(f"  {INTERVAL_MS}={found.interval_ms}")
    print(f"  {MATCH}={','.join(found.match)}")
    print(f"  {METRICS}={','.join(found.metrics)}")


def _random_name() -> str:
    """As `Uuid.randomUuid().toString()`: URL-safe base64, never with a leading dash."""
    while True:
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not name.startswith("-"):
            return name


if __name__ == "__main__":
    sys.exit(main())
