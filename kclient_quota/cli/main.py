"""`kclient-quota`: options in, a call, text out."""

import argparse
import sys
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from kclient_quota import __version__
from kclient_quota.cli.completion import add_completion
from kclient_quota.cli.printing import notice
from kclient_quota.cli.running import guarded, parsed, script
from kclient_quota.errors import ConfigError

_MAY_BE_EMPTY = ("--filter", "--partition-by")
_FAILED, _WRONG = 1, 2


@dataclass(frozen=True, slots=True)
class _Command:
    """What is said of a command; `_module` has the rest."""

    name: str
    help: str
    description: str


_COMMANDS = (
    _Command(
        "demo",
        "the same work under the same quota: as shipped, tuned by hand, ours",
        "Plays three scenes with confluent-kafka as shipped, confluent-kafka tuned by hand, and kclient-quota, all at "
        "once: producers, consumers, and a group that transforms. Ends with a verdict, summary.json and report.html.",
    ),
    _Command(
        "broker",
        "Kafka brokers that enforce quotas, in this process, until Ctrl-C",
        "Starts the embedded broker, for tests, demos and a desk; Ctrl-C leaves nothing behind.",
    ),
    _Command(
        "simulate",
        "many clients and brokers in virtual time",
        "Plays clients and brokers with the code that paces and throttles for real, in virtual time: utilisation, "
        "fairness, throttle times, settling time.",
    ),
    _Command(
        "doctor",
        "what a client would meet on a cluster, and what to change",
        "Connects as the client would: versions, rights, which quotas apply and from where, what they come to for a "
        "topic, settings that hurt under them, telemetry. Ends with what to change.",
    ),
    _Command(
        "top",
        "who is throttled now, by which quota, since when",
        "Shows clients by what they push (KIP-714): throttle and waiting times, rate beside the limit of the quota "
        "that decides, lag. From a topic of pushes or from a page for Prometheus.",
    ),
    _Command(
        "receive",
        "client telemetry out of a topic, to collectors, Prometheus, files",
        "Reads pushes of clients (KIP-714) from a topic and hands them on, each at least once, until Ctrl-C.",
    ),
    _Command(
        "dashboards",
        "a Grafana dashboard and Prometheus rules for the page of receive",
        "Writes a Grafana dashboard and Prometheus' recording and alerting rules for what `receive --metrics-port` "
        "shows: throttle times, waiting, usage beside the limits of quotas.",
    ),
    _Command(
        "pipeline",
        "Spark jobs over what clients have pushed",
        "Runs a Spark job over client telemetry: who is throttled, who is the outlier, which quota to set.",
    ),
    _Command(
        "certify",
        "put any Kafka client, in any language, or a broker to scenes of throttling",
        "Plays scenes of throttling with a client on an embedded broker, or asks a broker, and prints a score card.",
    ),
)


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (the process's own when None).

    Returns:
        the exit status: 0 done, 1 failed with one line of reason, 2 wrong options, 130 interrupted.
    """
    words = sys.argv[1:] if argv is None else argv
    options = parsed(_parser(words), words, _MAY_BE_EMPTY)

    def told(error: Exception) -> int:
        notice(f"kclient-quota: {error}")
        return _WRONG if isinstance(error, ConfigError) else _FAILED

    return guarded(lambda: int(options.run(options)), told)


def entry() -> None:
    """The installed command."""
    script(main)


def _module(command: str) -> Any:
    """What has a command's `add_arguments(parser)` and `run(options)`; what freezes a program reads statements."""
    module: Any
    match command:
        case "demo":
            from kclient_quota.cli import demo as module
        case "broker":
            from kclient_quota.broker import command as module
        case "simulate":
            from kclient_quota.cli import simulate as module
        case "doctor":
            from kclient_quota.cli import doctor as module
        case "top":
            from kclient_quota.cli import top as module
        case "receive":
            from kclient_quota.cli import receive as module
        case "dashboards":
            from kclient_quota.cli import dashboards as module
        case "pipeline":
            from kclient_quota.cli import pipeline as module
        case "certify":
            from kclient_quota.cli import certify as module
    return module


def _parser(words: Container[str]) -> argparse.ArgumentParser:
    """A parser that knows all commands by name, and the options of those that are called."""
    parser = argparse.ArgumentParser(
        prog="kclient-quota", description="Quota-aware Kafka clients for Python: see it, try it, test with it."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        known = commands.add_parser(command.name, help=command.help, description=command.description)
        known.add_argument(
            "--version", action="version", version=f"kclient-quota {__version__}", help=argparse.SUPPRESS
        )
        if command.name in words:
            module = _module(command.name)
            module.add_arguments(known)
            known.set_defaults(run=module.run)
    add_completion(commands, lambda: (_parser([command.name for command in _COMMANDS]),))
    return parser
