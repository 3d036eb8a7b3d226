"""Where gevent or eventlet replaces threading's locks after kclient_quota was imported; neither is needed here."""

import subprocess
import sys

import pytest

IMPORTED = """
import sys, threading
makers = {name: getattr(threading, name) for name in ("Lock", "RLock", "Condition", "Event", "Semaphore")}
made = []
def noting(name):
    def make(*args, **kwargs):
        made.append(sys._getframe(1).f_globals["__name__"])
        return makers[name](*args, **kwargs)
    return make
for name in makers:
    setattr(threading, name, noting(name))
import kclient_quota
for name in kclient_quota.__all__:
    getattr(kclient_quota, name)
ours = {module for module in made if module.startswith("kclient_quota")}
print(sorted(module for module in ours if not module.startswith("kclient_quota.clients.producer")))
"""

REPLACED = """
import sys, threading
import kclient_quota
from kclient_quota.clients import shared_pace
from kclient_quota.clients.consumer import storing, watching
kclient_quota.Consumer
made = []
def replace(name):
    maker = getattr(threading, name)
    def make(*args, **kwargs):
        made.append((name, sys._getframe(1).f_globals["__name__"].rpartition(".")[2]))
        return maker(*args, **kwargs)
    setattr(threading, name, make)
for name in ("Lock", "RLock", "Condition"):
    replace(name)
class Looks:
    def look(self):
        return 60_000
one = Looks()
watching.WATCHING.add(one)
watching.WATCHING.remove(one)
watched = set(made)
made.clear()
shared_pace.shared_limit(shared_pace.PaceKey("cluster", "id", None, None))
print({("Lock", "calls"), ("RLock", "late_lock")} <= watched, ("RLock", "late_lock") in made)
"""


@pytest.mark.parametrize(("script", "said"), [(IMPORTED, "[]"), (REPLACED, "True True")], ids=["imported", "replaced"])
def test_no_lock_is_older_than_what_replaced_threadings(script: str, said: str) -> None:
    """A Condition of WATCHING's that was older had `Consumer()` raise "cannot notify on un-acquired lock"."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == (said, "")
