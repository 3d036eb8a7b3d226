"""`python -m docs.generate`: write the pages of docs/reference/ that are made from code; `--check` only compares."""

import sys
from collections.abc import Sequence

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


OLDER = {"commands.md"} if sys.version_info >= (3, 13) else set()
"""Pages that are laid out by Python's argparse, and so written as Python 3.11 and 3.12 do: newer ones leave them alone."""


def main(arguments: Sequence[str]) -> int:
    """Write every page, and say which changed; with `--check` 1 if one would."""
    is_check = list(arguments) == ["--check"]
    changed = 0
    for name, page in PAGES.items():
        if name in OLDER:
            continue
        path, text = REFERENCE / name, page()
        if not path.exists() or path.read_text() != text:
            changed += 1
            if not is_check:
                path.write_text(text)
            print(f"{'to be written' if is_check else 'written'}: docs/reference/{name}")
    return int(is_check and changed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
