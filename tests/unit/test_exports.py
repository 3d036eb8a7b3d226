import subprocess
import sys

import pytest

import kclient_quota


def test_importing_the_package_loads_no_librdkafka() -> None:
    program = "import sys, kclient_quota; sys.exit('confluent_kafka' in sys.modules or 'asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_every_name_is_there_and_said_once() -> None:
    assert len(kclient_quota.__all__) == len(set(kclient_quota.__all__))
    assert set(kclient_quota.__all__) == set(kclient_quota._HOMES)
    for name in kclient_quota.__all__:
        assert getattr(getattr(kclient_quota, name), "__name__", name) == name


def test_what_is_not_wrapped_says_so() -> None:
    with pytest.raises(ImportError, match=r"use confluent_kafka\.ShareConsumer as it is"):
        from kclient_quota import ShareConsumer  # noqa: F401
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        _ = kclient_quota.Nonsense
