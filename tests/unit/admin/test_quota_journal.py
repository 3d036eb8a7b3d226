"""Places that a journal of quotas cannot be kept in, each said for what it is."""

import errno
import fcntl
import os

import pytest

from kclient_quota.admin.journal import Journal
from kclient_quota.errors import ConfigError


@pytest.mark.parametrize("kind", ["/dev/null", "/dev/full", "fifo"])
def test_what_is_no_file_keeps_no_journal(kind, tmp_path):
    path = tmp_path / kind
    if kind == "fifo":
        os.mkfifo(path)
    with pytest.raises(ConfigError, match="it is no regular file"), Journal(path, print).opened():
        pass


@pytest.mark.parametrize(
    ("code", "words"), [(errno.EAGAIN, "another run is writing"), (errno.ENOLCK, "cannot be locked: No locks")]
)
def test_a_file_system_without_locks_is_no_other_run(code, words, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ConfigError, match=words), Journal(tmp_path / "j", print).opened():
        pass
