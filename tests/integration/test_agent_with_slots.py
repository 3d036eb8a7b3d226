"""A tracing agent's class with `__slots__` in confluent_kafka's place, before kclient_quota is imported."""

import subprocess
import sys
from textwrap import dedent


def test_a_class_with_slots_stands_before_ours() -> None:
    program = """
        import confluent_kafka

        class Traced(confluent_kafka.Producer):
            __slots__ = ("calls",)

            def __init__(self, *args, **kwargs):
                self.calls = 0
                super().__init__(*args, **kwargs)

            def produce(self, *args, **kwargs):
                self.calls += 1
                return super().produce(*args, **kwargs)

        confluent_kafka.Producer = Traced
        from kclient_quota import Producer
        from kclient_quota.testing.kafka_broker import KafkaBroker

        with KafkaBroker(topics={"t": 1}) as broker, Producer({"bootstrap.servers": broker.bootstrap_servers}) as made:
            made.produce("t", b"x")
            made.flush(30)
            print(isinstance(made, Traced), made.calls, len(broker.records("t")))
    """
    command = [sys.executable, "-c", dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["True", "1", "1"]
