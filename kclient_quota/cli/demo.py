"""`kclient-quota demo`: options of the demo."""

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="play on this cluster instead of the embedded broker")
    parser.add_argument(
        "--input", type=Path, metavar="FILE", help="send this file's lines instead of generated messages"
    )
    parser.add_argument(
        "--seconds", type=float, default=24.0, help="length of each scene, 1 to 25 (default: %(default)g)"
    )
    parser.add_argument("--quota", type=float, default=51_200.0, help="bytes per second (default: %(default)g)")
    parser.add_argument(
        "--output", type=Path, default=Path("demo-report"), help="directory of the report (default: %(default)s)"
    )
    parser.add_argument(
        "--json", action="store_true", help="print summary.json on standard output, tables on standard error"
    )


def run(options: argparse.Namespace) -> int:
    """Play all scenes; 1 when the demo's own libraries are missing."""
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
