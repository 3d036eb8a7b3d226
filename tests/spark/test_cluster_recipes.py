"""What docs/how-to/spark-clusters.md tells to do: as far as it can be done without a cluster or a builder of images."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
import yaml
from kclient_telemetry.receiver.files import JsonLinesWriter

from kclient_quota.spark.session import java_home
from tests.spark.receiving import Client, ToFiles, receive

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "spark-clusters.md").read_text()
KUBERNETES = ROOT / "docs" / "how-to" / "spark-kubernetes"


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


def test_the_pod_template_is_for_executors_and_mounts_what_the_page_says():
    pod = yaml.safe_load((KUBERNETES / "executor.yaml").read_text())
    assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
    (container,) = pod["spec"]["containers"]
    assert container["name"] == "spark-kubernetes-executor"
    volumes = {each["name"]: each["persistentVolumeClaim"]["claimName"] for each in pod["spec"]["volumes"]}
    (mount,) = container["volumeMounts"]
    assert volumes[mount["name"]] == "telemetry"
    assert PAGE.count(f"{mount['mountPath']}/") == 2  # where the page's command reads and writes


@pytest.fixture
def image():
    return (KUBERNETES / "Dockerfile").read_text()


def test_the_image_has_the_pyspark_of_its_spark_and_the_python_that_pods_ask_for(image):
    release = re.search(r"^FROM apache/spark:([\d.]+)-python3$", image, re.MULTILINE).group(1)
    assert f"'pyspark=={release}'" in image
    pod = yaml.safe_load((KUBERNETES / "executor.yaml").read_text())
    python = {each["name"]: each["value"] for each in pod["spec"]["containers"][0]["env"]}["PYSPARK_PYTHON"]
    assert f"PYSPARK_PYTHON={python}" in image
    assert f"uv venv --python 3.11 {python.removesuffix('/bin/python')}" in image
    source, target = re.search(r"ln -s \S+/site-packages/(\S+) (\S+)", image).groups()
    assert (ROOT / source).is_file()
    assert f"local://{target} usage" in PAGE
