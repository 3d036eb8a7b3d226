import json

import pytest

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli import quotas
from tests.raw_answers import answering


def run(capsys, *arguments, status=0):
    assert quotas.main(["advise", *arguments]) == status
    captured = capsys.readouterr()
    return captured.err if status else captured.out


def test_by_hand(capsys):
    out = run(
        capsys,
        *("--quota=1000", "--brokers=3", "--partitions=4", "--clients=2", "--batch-bytes=100000"),
        *("--rate=500", "--other-topic-partitions=1"),
    )
    assert out.splitlines() == [
        "brokers that lead partitions: 3",
        "partitions: 4",
        "quota at which each of 2 gets 500 B/s: 334 B/s per broker",
        "cluster gives all clients together at most: 3000 B/s",
        "each of 2 clients gets: 1500 B/s",
        "with keys over all partitions, held back by the busiest broker, together: 2000 B/s",
        "each of two topics under one client-id, as measured, about: 2000 B/s",
        "burst after 10 s of idleness without a throttle, per broker: 10000 B",
        "throttle after twice that burst: 10 s",
        "largest batch that is ever delivered to a consumer: 9872 B",
        "smallest consumer quota that delivers batches of 100000 B: 10013 B/s per broker",
        "request_percentage of all threads, above which it limits nothing: 1100 %",
    ]


def test_asked_of_a_cluster(capsys):
    window = {"quota.window.num": "5", "quota.window.size.seconds": "2"}
    with EmbeddedBroker(brokers=3, topics={"orders": 2}, properties=window) as broker:
        server = f"--bootstrap-server={broker.bootstrap_servers}"
        rows = json.loads(run(capsys, server, "--topic=orders", "--quota=100", "--output=json"))
        by_name = {row["what"]: row["value"] for row in rows}
        assert by_name["brokers that lead partitions"] == 2
        assert by_name["cluster gives all clients together at most"] == 200
        assert by_name["burst after 8 s of idleness without a throttle, per broker"] == 800
        assert "--topic is missing" in run(capsys, server, status=2)
        assert "topic nothing was not described: UNKNOWN_TOPIC_OR_PARTITION (3)" in run(
            capsys, server, "--topic=nothing", status=1
        )


def test_from_live_metrics(capsys, tmp_path):
    from confluent_kafka import Producer

    # a window that is not over before somebody looks, however long that takes
    window = {"quota.window.size.seconds": "60"}
    with EmbeddedBroker(topics={"orders": 1}, metrics_port=0, properties=window) as broker:
        broker.set_quota(client_id="app", producer_byte_rate=10_000_000)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": "app"})
        producer.produce("orders", b"x" * 100_000)
        assert producer.flush(60) == 0
        out = run(capsys, f"--usage={broker.metrics_url}", "--output=json")
        (found,) = [row for row in json.loads(out) if row["entity"] == "{client-id=app} producer_byte_rate"]
        assert found["peak"] == pytest.approx(100_000 / 600, rel=0.1)
        assert found["quota"] >= 1.25 * found["peak"]
    assert "--usage" in run(capsys, f"--usage={tmp_path}/none", status=2)
    assert "--usage" in run(capsys, "--usage=http://[::1", status=2)
    for answer in (b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ncut", b""):
        with answering(answer) as port:
            assert "--usage" in run(capsys, f"--usage=http://127.0.0.1:{port}", status=2)


def test_from_what_the_spark_job_wrote(capsys, tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns = {
        "user": ["a", "a", None],
        "client_id": ["x", "x", "y"],
        "role": ["producer", "producer", "consumer"],
        "byte_rate": [100.0, 200.0, None],
        "byte_rate_max": [150.0, 400.0, None],
    }
    pq.write_table(pa.table(columns), tmp_path / "part-0.parquet")
    (row,) = json.loads(run(capsys, f"--usage={tmp_path}", "--output=json", "--headroom=0.5"))
    assert row == {"entity": "{user=a, client-id=x} producer_byte_rate", "peak": 400.0, "quota": 600}
    (tmp_path / "bad.parquet").write_text("no")
    assert "--usage" in run(capsys, f"--usage={tmp_path}/bad.parquet", status=2)
