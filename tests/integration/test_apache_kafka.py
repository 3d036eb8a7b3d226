"""The harness around Apache Kafka itself: starts, counts bytes, is gone afterwards."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kclient_quota.errors import ClusterError
from kclient_quota.testing.apache import ApacheKafka
from tests.required import require_apache_kafka


def _is_running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_three_brokers_hold_bytes_against_a_quota_of_their_own() -> None:
    with ApacheKafka(brokers=3, topics={"spread": 3}) as cluster:
        cluster.set_quota(client_id="app", producer_byte_rate=1_000_000)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "app"})
        for partition in range(3):
            producer.produce("spread", b"x" * 1000, partition=partition)
        assert producer.flush(60) == 0
        recorded = {sample.node_id: sample.value for sample in cluster.byte_samples() if sample.client_id == "app"}
        assert set(recorded) == {1, 2, 3}
        assert all(1000 < value < 1200 for value in recorded.values())
        assert cluster.metrics()[2, "Produce", "byte-rate", "user=,client-id=app"] > 0


@pytest.fixture(scope="module")
def secured() -> Iterator[ApacheKafka]:
    with ApacheKafka(topics={"t": 1}, users={"alice": "se cret"}) as cluster:
        yield cluster


def test_an_unknown_quota_value_is_refused_in_kafkas_words(secured: ApacheKafka) -> None:
    with pytest.raises(ClusterError, match="must be greater than"):
        secured.set_quota(client_id="app", producer_byte_rate=-1)


def test_users_of_the_sasl_listener_have_quotas(secured: ApacheKafka) -> None:
    secured.set_quota(user="alice", producer_byte_rate=500_000)
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        producer = Producer(
            {
                "bootstrap.servers": secured.sasl_bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.username": "alice",
                "sasl.password": "se cret",
            }
        )
        producer.produce("t", b"x" * 1000)
        assert producer.flush(60) == 0
    recorded = [sample for sample in secured.byte_samples() if sample.user == "alice"]
    assert 2000 < sum(sample.value for sample in recorded) < 2400
    assert {sample.client_id for sample in recorded} == {""}


def test_a_broker_comes_back_on_its_port_with_its_data() -> None:
    with ApacheKafka(topics={"t": 1}) as cluster:
        before = cluster.bootstrap_servers
        cluster.stop_broker(1)
        cluster.start_broker(1)
        assert cluster.bootstrap_servers == before
        with pytest.raises(ClusterError, match="already exists"):
            cluster.create_topic("t")


@pytest.mark.skipif(sys.platform == "win32", reason="kills by a POSIX signal")
def test_brokers_end_when_their_parent_is_killed() -> None:
    require_apache_kafka()
    script = (
        "from kclient_quota.testing.apache import ApacheKafka; import time\n"
        "cluster = ApacheKafka(topics={'t': 1, 'busy': 100}); cluster.start(); print(cluster.process_id)\n"
        "print(cluster.partition_folder(1, 't', 0).parent.parent, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        brokers = int(parent.stdout.readline())
        folder = Path(parent.stdout.readline().strip())
        assert _is_running(brokers)
        assert folder.is_dir()
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        deadline = time.monotonic() + 60
        while (_is_running(brokers) or folder.exists()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not _is_running(brokers)
        assert not folder.exists()
