"""Clients in Go: `python -m kclient_quota.certify.drivers.go franz|sarama|kafkago`. Needs Go."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

_SOURCE = Path(__file__).with_name("golang")
_CLIENTS = ("franz", "sarama", "kafkago")


def main() -> None:
    """Build (Go keeps what it has built before), then become the driver."""
    if len(sys.argv) != 2 or sys.argv[1] not in _CLIENTS:  # noqa: PLR2004 - one argument
        raise SystemExit(f"which client? One of {', '.join(_CLIENTS)}")
    name = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="kclient-quota-certify-") as folder:
        built = Path(folder, name)
        subprocess.run(["go", "build", "-o", str(built), f"./{name}"], cwd=_SOURCE, check=True)
        program = os.open(built, os.O_RDONLY)
    os.set_inheritable(program, True)
    os.execve(program, [name], os.environ)


if __name__ == "__main__":
    main()
