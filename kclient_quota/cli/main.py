"""`kclient-quota`: options in, a call, text out."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from kclient_quota.broker import command
from kclient_quota.errors import KclientQuotaError

Command = Callable[[argparse.Namespace], int]


def main(argv: list[str] | None = None) -> int:
    """Run the command line `argv` (the process's own when None).

    Returns:
        the exit status: 0 done, 1 failed with one line of reason, 2 wrong options, 130 interrupted.
    """
    parser = argparse.ArgumentParser(
        prog="kclient-quota", description="Quota-aware Kafka clients for Python: see it, try it, test with it."
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_demo(commands)
    _add_broker(commands)
    options = parser.parse_args(argv)
    run: Command = options.run
    try:
        return run(options)
    except KclientQuotaError as error:
        print(f"kclient-quota: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _add_demo(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    demo = commands.add_parser(
        "demo",
        help="the same work, plain and wrapped, side by side under a quota",
        description="Plays three scenes with plain confluent-kafka and with kclient-quota at the same time: producers, "
        "consumers, and a group that transforms. Ends with a table, summary.json and report.html.",
    )
    demo.add_argument("--bootstrap", metavar="HOST:PORT", help="play on this cluster instead of the embedded broker")
    demo.add_argument("--input", type=Path, metavar="FILE", help="send this file's lines instead of generated messages")
    demo.add_argument(
        "--seconds", type=float, default=24.0, help="length of each scene, 1 to 25 (default: %(default)g)"
    )
    demo.add_argument("--quota", type=float, default=51_200.0, help="bytes per second (default: %(default)g)")
    demo.add_argument(
        "--output", type=Path, default=Path("demo-report"), help="directory of the report (default: %(default)s)"
    )
    demo.add_argument(
        "--json", action="store_true", help="print summary.json on standard output, tables on standard error"
    )
    demo.set_defaults(run=_demo)


def _add_broker(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    broker = commands.add_parser(
        "broker",
        help="Kafka brokers that enforce quotas, in this process, until Ctrl-C",
        description="Starts the embedded broker, for tests, demos and a desk; Ctrl-C leaves nothing behind.",
    )
    command.add_arguments(broker)
    broker.set_defaults(run=command.run)


def _demo(options: argparse.Namespace) -> int:
    try:
        from kclient_quota.demo.run import DemoOptions, run  # noqa: PLC0415 - its libraries are an extra
    except ModuleNotFoundError as error:
        print(f"kclient-quota demo needs {error.name}: pip install 'kclient-quota[demo]'", file=sys.stderr)
        return 1
    run(
        DemoOptions(
            bootstrap=options.bootstrap,
            input_file=options.input,
            seconds=options.seconds,
            quota=options.quota,
            output=options.output,
            as_json=options.json,
        )
    )
    return 0
