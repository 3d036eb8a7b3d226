"""`kclient-quota dashboards`: a Grafana dashboard and Prometheus rules, written to files."""

import argparse
import json
from pathlib import Path

from kclient_quota.cli.printing import say
from kclient_quota.errors import ConfigError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--grafana", type=Path, metavar="FILE", help="write the dashboard there, as JSON to import")
    parser.add_argument("--rules", type=Path, metavar="FILE", help="write recording and alerting rules there, as YAML")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def run(options: argparse.Namespace) -> int:
    """Write what is asked for.

    Raises:
        ConfigError: nothing is asked for, or a file cannot be written.
    """
    from kclient_quota.operate.dashboards import grafana_text, rules_text  # noqa: PLC0415 - slow to load for --help

    wanted = [(path, text) for path, text in ((options.grafana, grafana_text), (options.rules, rules_text)) if path]
    if not wanted:
        raise ConfigError("nothing to write: give --grafana FILE, --rules FILE or both")
    for path, text in wanted:
        try:
            path.write_text(text(), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}") from error
        if not options.json:
            say(f"wrote {path}")
    if options.json:
        say(json.dumps([{"written": str(path)} for path, _ in wanted], indent=2))
    return 0
