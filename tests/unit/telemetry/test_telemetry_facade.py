import subprocess
import sys

import kclient_telemetry


def test_every_name_is_there_and_sorted():
    assert {*kclient_telemetry.__all__, "KafkaMetricReader"} == set(kclient_telemetry._HOMES)
    for name in kclient_telemetry._HOMES:
        assert getattr(kclient_telemetry, name).__name__ == name


def test_the_package_alone_loads_nothing_heavy():
    look = (
        "import sys, kclient_telemetry; sys.exit(any(n in sys.modules for n in ('google.protobuf', 'opentelemetry')))"
    )
    assert subprocess.run([sys.executable, "-c", look], check=False, timeout=60).returncode == 0
