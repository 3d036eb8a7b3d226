"""franz-go's fake cluster (kfake) beside the other brokers: `kfake/main.go`, built once where Go is installed."""

import atexit
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path

_SOURCE = Path(__file__).with_name("kfake")


@functools.cache
def built() -> Path | None:
    """The program, gone with this process; None without Go.

    Raises:
        RuntimeError: Go is there, and it cannot be built.
    """
    if shutil.which("go") is None:
        return None
    folder = tempfile.mkdtemp(prefix="go-peer-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program = Path(folder, "kfake")
    done = subprocess.run(
        ["go", "build", "-o", str(program), "."],
        cwd=_SOURCE, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"{_SOURCE.name} cannot be built: {done.stderr.strip()[:2000]}")
    return program
