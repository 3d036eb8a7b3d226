"""The installed commands: Ctrl-C ends them without a word from their first line on, while they are loaded, too."""

import os
from collections.abc import Callable


def kclient_quota() -> None:
    """`kclient-quota`."""

    def command() -> None:
        from kclient_quota.cli.main import entry

        entry()

    _run(command)


def kafka_quotas() -> None:
    """`kafka-quotas`."""

    def command() -> None:
        from kclient_quota.cli.quotas import entry

        entry()

    _run(command)


def kafka_client_metrics() -> None:
    """`kafka-client-metrics`."""

    def command() -> None:
        from kclient_quota.cli.client_metrics import entry

        entry()

    _run(command)


def _run(command: Callable[[], None]) -> None:
    try:
        command()
    except KeyboardInterrupt:
        os._exit(130)
