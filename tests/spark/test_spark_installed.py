"""Without the extra `spark` there is nothing to test here, which must not go unnoticed where everything is tested."""

import importlib.util
import subprocess
import sys

from tests.required import require


def test_the_spark_extra_is_installed_where_it_has_to_be():
    missing = [name for name in ("pyspark", "pyarrow", "ptars") if importlib.util.find_spec(name) is None]
    require(f"no Spark tests: pip install 'kclient-quota[spark]' ({', '.join(missing)})" if missing else None)


def test_importing_the_package_loads_no_spark():
    program = "import sys, kclient_quota, kclient_quota.cli.pipeline; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
