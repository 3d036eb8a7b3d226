"""Usage into Delta tables; collected with the releases of Spark that Delta has one for (`conftest`)."""

import os
import subprocess
import sys

import pyspark
import pytest

from tests.spark.pushes import steady, write

PACKAGE = f"io.delta:delta-spark_{pyspark.__version__.rpartition('.')[0]}_2.13:4.4.0"


@pytest.mark.timeout(420)
def test_usage_goes_into_delta_tables(tmp_path):
    pushes = write(tmp_path / "pushes", steady(3))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.delta_driver", PACKAGE, pushes, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=360,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    # a stream writes the windows that can get no more: the last two of the hour still could
    assert done.stdout.splitlines()[-2:] == ["batch 12", "stream 10"]
    assert (tmp_path / "stream" / "_delta_log").is_dir()
