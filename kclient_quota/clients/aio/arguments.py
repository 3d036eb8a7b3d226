"""Arguments of the asyncio clients, read as confluent_kafka.aio reads them."""

import asyncio
import concurrent.futures
from typing import Any

from confluent_kafka.aio import _common

from kclient_quota.clients.calls import merged, seconds


def configuration(loop: asyncio.AbstractEventLoop, given: Any, *callbacks: str) -> dict[str, Any]:
    """A copy of a configuration whose callbacks, coroutine functions, run in the loop; `callbacks` are further keys.

    Raises:
        TypeError: it is no dict, in confluent_kafka's words.
    """
    conf = dict(given) if isinstance(given, dict) else given
    _common.wrap_common_callbacks(loop, conf)
    for name in callbacks:
        _common.wrap_conf_callback(loop, conf, name)
    return merged((conf,), {})


def fit_time(*args: Any, **kwargs: Any) -> bool:
    """Whether these are arguments of a call that takes a time-out, and nothing else."""
    given = [seconds(each) for each in (*args, *kwargs.values())]
    return len(given) <= 1 and kwargs.keys() <= {"timeout"} and all(isinstance(each, int | float) for each in given)


def workers(executor: concurrent.futures.Executor | None, max_workers: int) -> concurrent.futures.Executor:
    """Those given; otherwise new ones."""
    return concurrent.futures.ThreadPoolExecutor(max_workers, "kclient-quota-aio") if executor is None else executor
