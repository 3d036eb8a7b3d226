"""Directories that a broker may not keep its data in, each said for what it is."""

import errno
import fcntl
import os

import pytest

from kclient_quota.broker.storage.cluster_storage import ClusterStorage
from kclient_quota.errors import ConfigError
from tests.unit.broker.storage_life import Life


def test_one_broker_at_a_time(tmp_path):
    life = Life(tmp_path)
    with pytest.raises(ConfigError, match="another broker uses this directory"):
        ClusterStorage(tmp_path)
    life.storage.close()
    ClusterStorage(tmp_path).close()


def test_a_file_system_without_locks_is_no_other_broker(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ConfigError, match="No locks available; name a directory"):
        ClusterStorage(tmp_path)


def test_a_directory_of_something_else_is_refused(tmp_path):
    (tmp_path / "metadata.jsonl").write_text("hello\n")
    with pytest.raises(ConfigError, match="line 1"):
        ClusterStorage(tmp_path)
    (tmp_path / "metadata.jsonl").write_text('{"k":["format"],"v":99}\n')
    with pytest.raises(ConfigError, match="another version"):
        ClusterStorage(tmp_path)
