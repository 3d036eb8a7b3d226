"""`python -m docs.generate`: write the pages of docs/reference/ that are made from code."""

import sys

from docs.generate import api, brokers, columns, commands, configuration, kips, log_messages, metrics, trials
from docs.generate.page import REFERENCE

PAGES = {
    "api.md": api.page,
    "broker-apis.md": brokers.page,
    "columns.md": columns.page,
    "commands.md": commands.page,
    "configuration.md": configuration.page,
    "kips.md": kips.page,
    "log-messages.md": log_messages.page,
    "metrics.md": metrics.page,
    "trials.md": trials.page,
}


def main() -> int:
    """Write every page, and say which changed."""
    for name, page in PAGES.items():
        path, text = REFERENCE / name, page()
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            print(f"written: docs/reference/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
