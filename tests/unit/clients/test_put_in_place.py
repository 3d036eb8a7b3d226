"""Our classes in confluent_kafka's place, which moves an application with all of its frameworks.

Each of ours is loaded when it is first named, so that some are loaded when others stand there.
"""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import confluent_kafka
import kclient_quota

how = sys.argv[1]
if how == "behind an agent":
    confluent_kafka.Producer = Traced = type("Traced", (confluent_kafka.Producer,), {})
confluent_kafka.Producer = kclient_quota.Producer
confluent_kafka.Consumer = kclient_quota.Consumer
if how == "subclassed":
    class Own(confluent_kafka.Producer):
        pass
    confluent_kafka.Producer = Own
for name in kclient_quota.__all__:
    getattr(kclient_quota, name)
assert issubclass(kclient_quota.DeserializingConsumer, kclient_quota.Consumer)
if how != "behind an agent":
    assert issubclass(kclient_quota.SerializingProducer, kclient_quota.Producer)
inner = __import__("kclient_quota.clients.aio.pending", fromlist=["InnerProducer"]).InnerProducer
if how == "behind an agent":
    assert Traced in inner.__mro__
"""


@pytest.mark.parametrize("how", ["alone", "subclassed", "behind an agent"])
def test_all_of_ours_can_be_loaded_when_some_stand_in_confluent_kafkas_place(how: str) -> None:
    command = [sys.executable, "-c", PROGRAM, how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
