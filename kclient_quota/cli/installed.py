"""The installed commands: Ctrl-C ends them without a word from their first line on, while they are loaded, too."""

import os
from importlib import import_module


def kclient_quota() -> None:
    """`kclient-quota`."""
    _run("main")


def kafka_quotas() -> None:
    """`kafka-quotas`."""
    _run("quotas")


def kafka_client_metrics() -> None:
    """`kafka-client-metrics`."""
    _run("client_metrics")


def _run(module: str) -> None:
    try:
        import_module(f"kclient_quota.cli.{module}").entry()
    except KeyboardInterrupt:
        os._exit(130)
