"""What all drivers in Python share: the assignment from the environment, and how they tell what happens."""

import json
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, NoReturn

from kclient_quota.certify.driver import CANNOT, value_of

_lock = threading.Lock()


class Stop(KeyboardInterrupt):
    """Somebody has sent SIGTERM, which ends an application as Ctrl-C does."""


class Assignment:
    """The variables of the environment, as attributes."""

    def __init__(self) -> None:
        self.role = os.environ["CERTIFY_ROLE"]
        self.bootstrap_servers = os.environ["CERTIFY_BOOTSTRAP_SERVERS"]
        self.client_id = os.environ["CERTIFY_CLIENT_ID"]
        self.topic = os.environ["CERTIFY_TOPIC"]
        self.group = os.environ["CERTIFY_GROUP"]
        self.messages = int(os.environ["CERTIFY_MESSAGES"])
        self.value_bytes = int(os.environ["CERTIFY_VALUE_BYTES"])
        self.keys = int(os.environ["CERTIFY_KEYS"])
        self.pause_s = int(os.environ["CERTIFY_PAUSE_MS"]) / 1000
        self.config: dict[str, Any] = json.loads(os.environ["CERTIFY_CONFIG"])

    def value(self, number: int) -> bytes:
        """The value of a message."""
        return value_of(number, self.value_bytes)

    def key(self, number: int) -> bytes | None:
        """The key of a message."""
        return str(number % self.keys).encode() if self.keys else None


def tell(event: str, number: int = -1, error: object = None, partition: int = -1, delivery: int = 0) -> None:
    """Write a line."""
    line: dict[str, Any] = {"event": event}
    if number >= 0:
        line["id"] = number
    if error is not None:
        line["error"] = str(error)
    if partition >= 0:
        line["partition"] = partition
    if delivery:
        line["delivery"] = delivery
    with _lock:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


def cannot(why: str) -> NoReturn:
    """End as a driver does whose client does not have what is asked about."""
    sys.stderr.write(f"{why}\n")
    sys.exit(CANNOT)


def stop_on_sigterm() -> None:
    """SIGTERM raises `Stop` in the main thread, once."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Stop

    signal.signal(signal.SIGTERM, stop)
