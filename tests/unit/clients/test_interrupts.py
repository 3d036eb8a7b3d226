"""What a signal's handler has raised within confluent_kafka is raised, and not what confluent_kafka takes it for."""

from collections.abc import Callable
from typing import NoReturn

import pytest

from kclient_quota.clients.calls import interruptible
from tests.signals import Stop

LOOKED_UP = "Module not found when looking up confluent_kafka.ThrottleEvent"
SET = "<built-in method append of collections.deque object> returned a result with an exception set"


def raising(error: BaseException, cause: BaseException | None = None) -> Callable[[], NoReturn]:
    def call() -> NoReturn:
        raise error from cause

    return call


@pytest.mark.parametrize(
    ("call", "raised"),
    [
        (raising(ImportError(LOOKED_UP)), KeyboardInterrupt),
        (raising(ImportError("No module named 'lz4'")), ImportError),
        (raising(SystemError(SET), KeyboardInterrupt()), KeyboardInterrupt),
        (raising(SystemError(SET), Stop()), Stop),
        (raising(SystemError(SET)), SystemError),
        (raising(SystemError("<method 'poll'> returned NULL without setting an exception")), KeyboardInterrupt),
        (raising(SystemError("another")), SystemError),
    ],
    ids=["looked up", "another module", "Ctrl-C set", "set by a handler", "set by nobody", "not set", "another"],
)
def test_it_is_raised(call: Callable[[], NoReturn], raised: type[BaseException]) -> None:
    """Under a quota, with a Ctrl-C in the moment of a throttle's event, `consume()` raised an ImportError."""
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - which one is what is asked
        interruptible(call)
    assert type(caught.value) is raised
