"""Bytewax with our client in its sink: the wait for the quota holds the whole flow back, and nothing piles up.

pip install kclient-quota bytewax; python examples/stream_sink.py
"""

import time
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import TestingSource, run_main

from kclient_quota import Producer
from kclient_quota.testing.kafka_broker import KafkaBroker


class Part(StatelessSinkPartition[bytes]):
    """One worker's part; `write_batch` returns when everything is stored, so that a snapshot speaks the truth."""

    def __init__(self, conf: dict[str, str]) -> None:
        self.producer = Producer(conf)  # in the worker that uses it, not before it was forked
        self.failed: list[Any] = []

    def write_batch(self, items: list[bytes]) -> None:
        """Takes as long as the quota wants."""
        for item in items:
            self.producer.produce("invoices", item, on_delivery=self.report)
        if self.producer.flush(60) or self.failed:
            raise RuntimeError(f"not everything is stored; Bytewax goes back to its snapshot: {self.failed[:3]}")

    def report(self, error: Any, _message: Any) -> None:
        """What the broker said."""
        self.failed += [error] if error else []

    def close(self) -> None:
        """The flow has ended."""
        self.producer.close()


class KafkaSink(DynamicSink[bytes]):
    """In place of bytewax.connectors.kafka.KafkaSink, which makes a plain producer."""

    def __init__(self, conf: dict[str, str]) -> None:
        self.conf = conf

    def build(self, step_id: str, worker_index: int, worker_count: int) -> Part:
        """Called in every worker."""
        return Part(self.conf)


if __name__ == "__main__":
    with KafkaBroker(topics={"invoices": 1}) as cluster:
        cluster.set_quota(client_id="sink", producer_byte_rate=20_000)
        sink = KafkaSink({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "sink"})
        flow = Dataflow("invoices")
        op.output("out", op.input("in", flow, TestingSource([b"x" * 1000] * 100, batch_size=20)), sink)
        began = time.monotonic()
        run_main(flow)
        print(f"{len(cluster.records('invoices'))} invoices in {time.monotonic() - began:.1f} s")
