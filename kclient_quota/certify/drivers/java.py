"""Kafka's own Java client: `python -m kclient_quota.certify.drivers.java`. Needs a JDK, and Maven the first time."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from kclient_quota.testing.apache.artefacts import class_path

_SOURCE = Path(__file__).with_name("Driver.java")


def main() -> None:
    """Compile once for every state of the source, then become the JVM."""
    libraries = class_path()
    compiled = Path(tempfile.gettempdir(), f"kclient-quota-certify-{os.getuid()}-{_SOURCE.stat().st_mtime_ns}")
    if not (compiled / "Driver.class").exists():
        with tempfile.TemporaryDirectory(dir=tempfile.gettempdir()) as folder:
            subprocess.run(["javac", "-nowarn", "-proc:none", "-d", folder, "-cp", libraries, str(_SOURCE)], check=True)
            compiled.mkdir(mode=0o700, exist_ok=True)
            for made in Path(folder).iterdir():  # other scenes may compile at the same time
                made.replace(compiled / made.name)
    config = json.loads(os.environ["CERTIFY_CONFIG"])
    settings = [
        f"-Dcertify.{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in config.items()
    ]
    arguments = [
        "java",
        "-Xmx256m",
        "-XX:+UseSerialGC",
        *settings,
        "-cp",
        f"{compiled}{os.pathsep}{libraries}",
        "Driver",
    ]
    os.execvp("java", arguments)


if __name__ == "__main__":
    main()
