"""What docs/how-to/spark-clusters.md tells to do: what its files say; `tests/spark_grid` plays its command."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "spark-clusters.md").read_text()
KUBERNETES = ROOT / "docs" / "how-to" / "spark-kubernetes"


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
