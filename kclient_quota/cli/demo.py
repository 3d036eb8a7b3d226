"""`kclient-quota demo`: options of the demo."""

import argparse
import sys
from pathlib import Path

from kclient_quota.cli.printing import ListHelpFormatter
from kclient_quota.cli.quantities import rate, servers
from kclient_quota.cli.running import stops_are_ctrl_c

_SCENES = {
    "producers": "with a backlog",
    "consumers": "that catch up",
    "transforms": "a group whose producer is throttled",
    "pipeline": "50 clients, what they push, Spark, the quotas to set, applied; needs kclient-quota[spark]",
}
_COMPARED = tuple(_SCENES)[:3]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.formatter_class = ListHelpFormatter
    parser.epilog = "scenes:\n" + "\n".join(f"  {name:10} {what}" for name, what in _SCENES.items())
    parser.add_argument(
        "--scene",
        action="append",
        choices=tuple(_SCENES),
        metavar="NAME",
        help="only this one, or several (default: the first three below)",
    )
    parser.add_argument(
        "--bootstrap-server",
        dest="bootstrap",
        type=servers,
        metavar="HOST:PORT",
        help="play on this cluster instead of the embedded broker",
    )
    parser.add_argument(
        "--input", type=Path, metavar="FILE", help="send this file's lines instead of generated messages"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=40.0,
        help="how long to play, 1 to 300 (default: %(default)g); from 150 on, requests that librdkafka gave up after "
        "60 s are seen twice",
    )
    parser.add_argument(
        "--quota", type=rate, default=51_200.0, metavar="RATE", help="such as 51200 or 50KiB/s (default: %(default)g)"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("demo-report"), help="directory of the report (default: %(default)s)"
    )
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="write one picture of the first scene to this SVG file"
    )
    parser.add_argument(
        "--json", action="store_true", help="print summary.json on standard output, tables on standard error"
    )


@stops_are_ctrl_c()
def run(options: argparse.Namespace) -> int:
    """Play the scenes; 1 when the demo's own libraries are missing."""
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
            scenes=tuple(options.scene or _COMPARED),
            record=options.record,
        )
    )
    return 0
