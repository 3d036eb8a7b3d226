"""The command of docs/how-to/spark-clusters.md, on executors that are processes of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from kclient_telemetry.receiver.files import JsonLinesWriter

from kclient_quota.spark.session import java_home
from tests.spark.receiving import Client, ToFiles, receive

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "spark-clusters.md").read_text()


@pytest.mark.timeout(600)
def test_spark_submit_takes_the_command_as_a_script_and_a_link_to_it(spark, tmp_path):
    """As the archive's recipe has it and, by the link, the image's; executors are processes of their own."""
    script = re.search(r"site-packages/(kclient_quota/cli/pipeline\.py) usage --input", PAGE).group(1)
    link = tmp_path / "pipeline.py"
    link.symlink_to(ROOT / script)
    writer = JsonLinesWriter(tmp_path / "pushes")
    receive([Client(n, f"app{n}", "u", 1_000.0) for n in range(3)], 4, [ToFiles(writer)])
    writer.close()
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    paths = os.pathsep.join(filter(None, [str(ROOT), *sys.path]))
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": paths}
    given = ["usage", "--input", str(tmp_path / "pushes"), "--output", str(tmp_path / "usage")]
    done = subprocess.run(
        [str(submit), "--master", "local-cluster[2,1,1024]", str(link), *given],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, **environment, "JAVA_HOME": str(java_home())},
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    assert spark.read.parquet(str(tmp_path / "usage")).select("client_id").distinct().count() == 3
