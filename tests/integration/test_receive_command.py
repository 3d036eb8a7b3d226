"""`kclient-quota receive` on a topic of the embedded broker."""

import json
import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from uuid import UUID

import confluent_kafka
import pytest
from kclient_telemetry.messages import uuid_text
from kclient_telemetry.otlp import parse, with_resource_attributes

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli.main import main

PAYLOAD = (Path(__file__).parents[1] / "unit" / "telemetry" / "payloads" / "java-producer-0.bin").read_bytes()
WHO = {"client_id": "shop", "client_instance_id": uuid_text(UUID(int=7)), "principal": "User:alice", "broker_id": "1"}


@pytest.fixture
def cluster():
    with EmbeddedBroker(topics={"telemetry": 2}) as running:
        producer = confluent_kafka.Producer({"bootstrap.servers": running.bootstrap_servers})
        value = with_resource_attributes(PAYLOAD, WHO, parse(PAYLOAD))
        for number in range(20):
            producer.produce("telemetry", value, key=str(number))
        producer.produce("telemetry", b"\xffno telemetry")
        producer.produce("telemetry", b"")
        assert producer.flush(60) == 0
        yield running


@pytest.fixture
def collector():
    """Refuses twice, then takes all; what it took."""
    posted, answers = [], [503, 503]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            code = answers.pop() if answers else 200
            if code == 200:
                posted.append((self.headers, body))
            self.send_response(code)
            self.end_headers()

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", posted
        server.shutdown()


def receive(cluster, *more):
    where = ["--bootstrap-server", cluster.bootstrap_servers, "--from-topic", "telemetry", "--from-beginning"]
    return main(["receive", *where, "--idle-exit", "1.5", *map(str, more)])


def test_pushes_reach_collector_and_files_and_are_read_once(cluster, collector, tmp_path, capsys, monkeypatch):
    url, posted = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60000")
    assert receive(cluster, "--otlp", "--otlp-header", "x-tenant=shop", "--jsonl", tmp_path) == 0
    assert "22 records, 21 pushes, 1 unreadable" in capsys.readouterr().out
    resources = sum(len(parse(body).resource_metrics) for _, body in posted)
    assert resources == 20 * len(parse(with_resource_attributes(PAYLOAD, WHO, parse(PAYLOAD))).resource_metrics)
    assert posted[0][0]["x-tenant"] == "shop"
    rows = [json.loads(line) for file in tmp_path.glob("*.jsonl") for line in file.read_text().splitlines()]
    assert {(row["client_id"], row["principal"], row["broker_id"]) for row in rows} == {("shop", "User:alice", "1")}
    # what was handed on is committed: nothing is read again
    assert receive(cluster, "--jsonl", tmp_path) == 0
    assert "0 records" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nowhere to put it"),
        (["--otlp", "http://"], "this is no URL"),
        (["--otlp", "http://a..b:4318"], "this is no URL"),
        (["--otlp", f"http://{'a' * 64}:4318"], "this is no URL"),
        (
            ["--otlp", "http://c/\u00fc"],
            "this is no URL; write http://HOST:PORT, and what is not ASCII",
        ),
        (["--otlp", "http://c", "--otlp-header", "x"], "write it as KEY=VALUE"),
        (["--otlp", "https://c", "--otlp-ca", "/none/ca.pem"], "No such file"),
        (["--jsonl", "/proc/none"], "--jsonl /proc/none: No such file or directory; name a directory that can be made"),
    ],
)
def test_wrong_options(arguments, words, capsys):
    assert main(["receive", "--bootstrap-server", "127.0.0.1:1", "--from-topic", "t", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("command", [["receive", "--jsonl", "x"], ["top", "--plain"]])
def test_a_cluster_that_does_not_answer_is_one_line(command, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert main([*command, "--from-topic", "t", "--bootstrap-server", "127.0.0.1:1", "--timeout", "0.5"]) == 1
    err = capfd.readouterr().err
    assert "127.0.0.1:1 did not answer within 0.5 s: " in err
    assert "Connection refused" in err
    assert "; check --bootstrap-server and, in --command-config, security.protocol\n" in err
    words = [line for line in err.splitlines() if "FAIL" in line and "127.0.0.1:1/" in line]
    assert not words, "librdkafka's, one for each try; of other tests' clients there may be some"


def test_a_topic_that_is_not_there_yet_is_said(tmp_path, capsys):
    with EmbeddedBroker() as cluster:
        where = ["--bootstrap-server", cluster.bootstrap_servers, "--from-topic", "telemetri"]
        assert main(["receive", *where, "--jsonl", str(tmp_path), "--idle-exit", "0.3"]) == 1
    err = capsys.readouterr().err
    assert "there is no topic telemetri yet; waiting for it" in err
    assert "there is no topic telemetri: nothing was read; check --from-topic, or have it made first" in err


def test_a_name_that_no_topic_can_have(cluster, tmp_path, capsys):
    """Nobody waits for it: a group gives out no partitions of it."""
    where = ["--bootstrap-server", cluster.bootstrap_servers, "--from-topic", "telemetry,other"]
    assert main(["receive", *where, "--idle-exit", "0.1", "--jsonl", str(tmp_path)]) == 2
    assert main(["top", *where, "--once", "--interval", "0.1"]) == 2
    said = "--from-topic telemetry,other: no topic can have this name; name one topic"
    assert capsys.readouterr().err.count(said) == 2


def test_a_page_that_cannot_be_served_names_its_options(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = str(taken.getsockname()[1])
        words = ["receive", "--bootstrap-server", "127.0.0.1:1", "--from-topic", "t", "--metrics-port", port]
        assert main(words) == 2
    said = f"kclient-quota: --metrics-host 127.0.0.1 --metrics-port {port}: Address already in use; name an address"
    assert capsys.readouterr().err.startswith(said)


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
def test_who_closes_the_pipe_of_its_page_does_not_end_it(cluster, tmp_path):
    """`receive --metrics-port 0 | head -1` takes the address; the rest is to go on."""
    where = ["--bootstrap-server", cluster.bootstrap_servers, "--from-topic", "telemetry", "--from-beginning"]
    words = ["receive", *where, "--idle-exit", "0.5", "--metrics-port", "0", "--jsonl", str(tmp_path)]
    code = f"import sys; sys.argv[1:] = {words!r}; import kclient_quota.cli.main as m; m.entry()"
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([sys.executable, "-c", code], check=False, stdout=writer, timeout=60)
    finally:
        os.close(writer)
    assert done.returncode == 0
    assert list(tmp_path.glob("*.jsonl"))
