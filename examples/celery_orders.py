"""Celery with forked workers: every child makes its own producer, since no Kafka client survives a fork.

pip install celery; python examples/celery_orders.py (an in-memory queue of tasks; yours is Redis or RabbitMQ)
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from celery import Celery
from celery.signals import worker_process_init, worker_process_shutdown

from kclient_quota import Producer
from kclient_quota.broker import EmbeddedBroker

ORDERS = 40
folder = Path(os.environ.setdefault("TASKS", tempfile.mkdtemp(prefix="orders-")))
app = Celery("orders", broker="filesystem://", backend=f"file://{folder}")
app.conf.broker_transport_options = {
    key: str(folder) for key in ("data_folder_in", "data_folder_out", "control_folder")
}
producer: Producer | None = None


@worker_process_init.connect
def start(**_: Any) -> None:
    """In the child, after the fork."""
    global producer  # noqa: PLW0603 - one producer for each process
    producer = Producer({"bootstrap.servers": os.environ["BOOTSTRAP_SERVERS"], "client.id": "orders"})


@worker_process_shutdown.connect
def stop(**_: Any) -> None:
    """Deliver what there is; bounded by max.block.ms."""
    if producer is not None:
        producer.close()


@app.task
def send(order: int) -> int:
    """Done when Kafka has it; waits while the quota is used up, and other workers go on."""
    assert producer is not None, "worker_process_init makes it: run with --pool prefork"
    producer.produce("orders", b"x" * 1000, key=str(order))
    return producer.flush(60)


if __name__ == "__main__":
    from celery.contrib.testing.worker import start_worker

    with EmbeddedBroker(topics={"orders": 1}) as cluster:
        cluster.set_quota(client_id="orders", producer_byte_rate=20_000)
        os.environ["BOOTSTRAP_SERVERS"] = cluster.bootstrap_servers
        with start_worker(app, pool="prefork", concurrency=2, perform_ping_check=False, shutdown_timeout=60):
            results = [send.delay(number) for number in range(ORDERS)]
            unsent = sum(result.get(timeout=120, disable_sync_subtasks=False) for result in results)
        print(f"{ORDERS - unsent} of {ORDERS} orders sent by two workers")
