"""Which signals a command ends by itself for, and which it leaves as they were."""

import os
import signal

import pytest

from kclient_quota.stops import stops_heard


@pytest.fixture(params=[signal.SIG_DFL, signal.SIG_IGN], ids=["terminal", "nohup"])
def hang_up(request):
    former = signal.signal(signal.SIGHUP, request.param)
    yield request.param
    signal.signal(signal.SIGHUP, former)


def test_a_hang_up_is_heard_unless_it_is_ignored(hang_up):
    with stops_heard() as is_stopped:
        # what is not heard would end this process
        if signal.getsignal(signal.SIGHUP) != signal.SIG_DFL:
            os.kill(os.getpid(), signal.SIGHUP)
        assert is_stopped() is (hang_up == signal.SIG_DFL)
    assert signal.getsignal(signal.SIGHUP) == hang_up
