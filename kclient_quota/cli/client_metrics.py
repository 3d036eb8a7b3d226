"""`kafka-client-metrics`: client-metrics subscriptions (KIP-714), with Kafka's own options and output."""

import argparse
import base64
import json
import sys
import uuid
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from kclient_quota import __version__
from kclient_quota.cli.completion import SHELLS, completion
from kclient_quota.cli.printing import notice, say
from kclient_quota.cli.properties import read_command_config
from kclient_quota.cli.quantities import seconds, servers
from kclient_quota.cli.running import guarded, parsed, script

if TYPE_CHECKING:
    from kclient_quota.admin.client_metrics import ClientMetricsSubscription
    from kclient_quota.admin.quotas import QuotaAdmin

_NONE = "there are no client metrics subscriptions"
_ACTIONS = ("alter", "delete", "describe", "list")
_VALUES = {"interval": "interval.ms", "match": "match", "metrics": "metrics"}


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (the process's own when None).

    Returns:
        the exit status: 0 done, 1 refused or wrong options (as Kafka's tool has it), 130 interrupted.
    """
    parser = _parser()
    words = sys.argv[1:] if argv is None else argv

    def told(error: Exception) -> int:
        notice(f"Error while executing client metrics command : {error}")
        return 1

    if words[:1] == ["completion"]:
        return guarded(lambda: _completion(words[1:]), told)
    options = parsed(parser, words, [f"--{option}" for option in ("name", *_VALUES)])
    problem = _problem(options) or _said_in_vain(options)
    if problem:
        parser.print_usage(sys.stderr)
        print(problem, file=sys.stderr)
        return 1
    return guarded(lambda: _carry_out(options), told)


def entry() -> None:
    """The installed command."""
    script(main, is_answer=True)


def _completion(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="kafka-client-metrics completion")
    parser.add_argument("shell", choices=SHELLS)
    print(completion(parser.parse_args(words).shell, [_parser()]))
    return 0


def _carry_out(options: argparse.Namespace) -> int:
    from kclient_quota.admin.quotas import QuotaAdmin  # noqa: PLC0415 - slow to load for --help

    conf = read_command_config(options.command_config) if options.command_config else {}
    conf["bootstrap.servers"] = options.bootstrap_server
    with QuotaAdmin(conf) as admin:
        _run(admin, options)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kafka-client-metrics",
        description="This tool helps to manipulate and describe client metrics configurations.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument("--timeout", type=seconds, default=30.0, metavar="SECONDS", help="default: %(default)g")
    parser.add_argument("--json", action="store_true", help="print what is listed, described or done as JSON")
    parser.add_argument("--bootstrap-server", type=servers, required=True, metavar="HOST:PORT", help="the cluster")
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


def _said_in_vain(options: argparse.Namespace) -> str | None:
    given = [option for option in _VALUES if getattr(options, option) is not None]
    if given and not options.alter:
        return f'Option "[{given[0]}]" can only be used with --alter.'
    if options.list and options.name is not None:
        return 'Option "[name]" cannot be used with --list.'
    return None


def _run(admin: "QuotaAdmin", options: argparse.Namespace) -> None:
    timeout = options.timeout
    if options.list:
        names = admin.list_client_metrics_subscriptions(request_timeout=timeout).result()
        print(json.dumps(names) if options.json else "\n".join(names))
        if not names:
            notice(_NONE)
    elif options.describe:
        _describe(admin, options)
    elif options.delete:
        admin.delete_client_metrics_subscription(options.name, request_timeout=timeout).result()
        _tell(options, "deleted", options.name, f"Deleted client metrics config for {options.name}.")
    else:
        # an empty name is none to make up: a script's variable that was never set would subscribe to every client
        name = _random_name() if options.generate_name else options.name
        given = {key: getattr(options, option) for option, key in _VALUES.items()}
        values = {key: value or None for key, value in given.items() if value is not None}
        admin.alter_client_metrics_subscription(name, values, request_timeout=timeout).result()
        _tell(options, "altered", name, f"Altered client metrics config for {name}.")


def _tell(options: argparse.Namespace, done: str, name: str, words: str) -> None:
    say(json.dumps({"name": name, "done": done}) if options.json else words)


def _describe(admin: "QuotaAdmin", options: argparse.Namespace) -> None:
    timeout = options.timeout
    names = [options.name]
    if options.name is None:
        names = admin.list_client_metrics_subscriptions(request_timeout=timeout).result()
    rows = []
    for each in names:
        found = admin.describe_client_metrics_subscription(each, request_timeout=timeout).result()
        if options.json:
            rows += [] if found is None else [asdict(found)]
        elif found is None:
            print(f"The client metric resource {each} doesn't exist and doesn't have dynamic config.")
        else:
            _print(found)
    if options.json:
        print(json.dumps(rows, indent=2))
    elif not names:
        notice(_NONE)


def _print(found: "ClientMetricsSubscription") -> None:
    print(f"Client metrics configs for {found.name} are:")
    print(f"  interval.ms={found.interval_ms}")
    print(f"  match={','.join(found.match)}")
    print(f"  metrics={','.join(found.metrics)}")


def _random_name() -> str:
    """As `Uuid.randomUuid().toString()`: URL-safe base64, never with a leading dash."""
    while True:
        name = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not name.startswith("-"):
            return name


if __name__ == "__main__":
    entry()
