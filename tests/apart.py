"""A call in another thread: in the main one a signal's handler might come, and a call waits otherwise there."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def apart(call: Callable[..., Any], *args: Any) -> Any:
    """What it returns, or raises."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call, *args).result()
