"""Without the extra `spark` there is nothing to test here, which must not go unnoticed where everything is tested."""

import importlib.util
import os
import subprocess
import sys

import pytest


def test_the_spark_extra_is_installed_where_it_has_to_be():
    missing = [name for name in ("pyspark", "pyarrow", "ptars") if importlib.util.find_spec(name) is None]
    if missing and not os.environ.get("CI"):
        pytest.skip(f"no Spark tests: {', '.join(missing)} not installed (pip install 'kclient-quota[spark]')")
    assert not missing, "pip install 'kclient-quota[spark]'"


def test_importing_the_package_loads_no_spark():
    program = "import sys, kclient_quota, kclient_quota.cli.pipeline; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
