"""Numbers and addresses on the command line."""

import argparse

import pytest

from kclient_quota.cli.quantities import seconds, servers
from kclient_quota.cli.telemetry_page import page_source
from kclient_quota.errors import ConfigError


@pytest.mark.parametrize("text", ["a:99999", "a:9092,b:65536", "[::1]:70000", "SSL://a:70000", "a:-46444", "a:9092x"])
def test_a_port_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="write a port"):
        servers(text)


@pytest.mark.parametrize("text", ["a", "a:9092", "a:1, b:65535 ,", "[::1]:9092", "::1", "SSL://a:9093/", ""])
def test_an_address_is_left_as_it_is(text: str) -> None:
    assert servers(text) == text


def test_a_page_s_port_is_one() -> None:
    with pytest.raises(ConfigError, match="Port out of range"):
        page_source("http://a:84000/metrics", lambda sample: None, lambda: False)


def test_seconds_are_no_more_than_can_be_waited_for() -> None:
    assert seconds("1e9") == 1e9
    with pytest.raises(argparse.ArgumentTypeError, match="at most"):
        seconds("1e15")
