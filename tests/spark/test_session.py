"""What a session needs of the machine."""

import os
import subprocess
import sys

import pytest

from kclient_quota.errors import ConfigError
from kclient_quota.spark import session


def test_the_packaged_java_takes_the_flag_that_sparks_launcher_gives():
    java = session.packaged_java_home() / "bin" / "java"
    flags = ["-Da=b c", "--add-modules=jdk.incubator.vector", "-version"]
    done = subprocess.run([str(java), *flags], capture_output=True, text=True, check=False)
    assert (done.returncode, 'version "21' in done.stderr) == (0, True)


def test_nothing_is_left_of_the_packaged_java_when_the_process_ends(tmp_path):
    code = (
        "import os; from kclient_quota.spark.session import packaged_java_home as home; made = home()\n"
        "if os.fork() == 0: raise SystemExit\n"
        "os.wait(); print(made, (made / 'bin' / 'java').is_file())"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split()[1:] == ["True"]
    assert list(tmp_path.iterdir()) == []


def test_without_a_java_on_the_machine_the_packaged_one_is_taken(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert session.java_home() == session.packaged_java_home()


def test_what_is_missing_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "ptars", None)
    with pytest.raises(ConfigError, match=r"needs ptars.*pip install 'kclient-quota\[spark\]'"):
        session.check_libraries()
