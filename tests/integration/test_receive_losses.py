"""`kclient-quota receive` hands everything on at least once: what a sink has not done with is read again."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from kclient_telemetry.otlp import parse, with_resource_attributes
from kclient_telemetry.receiver import files

from kclient_quota.broker import EmbeddedBroker
from kclient_quota.cli import receive
from kclient_quota.cli.main import main

PAYLOAD = (Path(__file__).parents[1] / "unit" / "telemetry" / "payloads" / "java-producer-0.bin").read_bytes()
PUSHES = 20


@pytest.fixture
def cluster():
    with EmbeddedBroker(topics={"telemetry": 1}) as running:
        produce(running, range(PUSHES))
        yield running


def produce(cluster, clients, topic="telemetry", partition=0):
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in clients:
        push = with_resource_attributes(PAYLOAD, {"client_id": f"c{number}"}, parse(PAYLOAD))
        producer.produce(topic, push, partition=partition)
    assert producer.flush(60) == 0


def words(cluster, *more):
    where = ["--bootstrap-server", cluster.bootstrap_servers, "--from-topic", "telemetry", "--from-beginning"]
    return ["receive", *where, *map(str, more)]


def words_of_a_new_group(cluster, *more):
    asked = words(cluster, "--group", "new", *more)
    asked.remove("--from-beginning")
    return asked


def started(cluster, *more):
    return run_apart(words(cluster, *more))


def run_apart(arguments):
    interruptible = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # in the background, too
    hung_up = "signal.signal(signal.SIGHUP, signal.SIG_DFL)"  # though the suite may run under `nohup`
    code = f"{interruptible}; {hung_up}; import kclient_quota.cli.main as m; m.entry()"
    given = [sys.executable, "-c", code, *arguments]
    patient = {**os.environ, "OTEL_EXPORTER_OTLP_TIMEOUT": "60000"}
    return subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=patient)


def clients_in(folder):
    rows = [json.loads(line) for file in folder.glob("telemetry-*.jsonl") for line in file.read_text().splitlines()]
    return {row["client_id"] for row in rows}


EVERYBODY = {f"c{number}" for number in range(PUSHES)}


def everything_comes_again(cluster, folder, *more):
    assert main(words(cluster, "--jsonl", folder, "--idle-exit", "1.5", *more)) == 0
    assert clients_in(folder) == EVERYBODY


def soon(is_so):
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, "not within a minute"
        time.sleep(0.05)


@pytest.mark.parametrize("collector", ["silent", "refusing"])
def test_ctrl_c_while_the_collector_is_away_loses_nothing_and_is_heeded_at_once(cluster, collector, tmp_path):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        if collector == "silent":
            server.listen()
        with started(cluster, "--otlp", address, "--metrics-port", "0") as process:
            page = process.stdout.readline().split()[1]
            soon(lambda: f"telemetry_pushes_total {PUSHES}" in read(page))
            time.sleep(2.5)  # longer than it takes until offsets are committed
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
            assert time.monotonic() - began < 45, "of the 60 s that a collector has for its answer"
    assert process.returncode == 0
    assert f"{PUSHES} pushes were not handed on, they are read again next time" in err
    assert "lost" not in err
    everything_comes_again(cluster, tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full")
def test_a_full_disk_under_its_log_keeps_it_from_nothing(cluster, tmp_path):
    with Path("/dev/full").open("w") as full:
        asked = [sys.executable, "-m", "kclient_quota", *words(cluster, "--jsonl", tmp_path, "--idle-exit", "1")]
        done = subprocess.run(asked, check=False, stdout=subprocess.PIPE, stderr=full, text=True, timeout=120)
    assert (done.returncode, done.stdout.split(",")[0]) == (0, f"{PUSHES} records")
    assert clients_in(tmp_path) == EVERYBODY


def test_a_terminal_that_is_closed_ends_it_in_its_own_time(cluster, tmp_path):
    process = started(cluster, "--jsonl", tmp_path)
    try:
        soon(lambda: list(tmp_path.glob("_telemetry-*.jsonl")))
        process.send_signal(signal.SIGHUP)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "0 not handed on" in out
    assert not list(tmp_path.glob("_telemetry-*.jsonl"))


def test_what_a_collector_that_is_away_has_not_got_is_a_failure(cluster, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(receive, "_CLOSE_MS", 300)
    assert main(words(cluster, "--otlp", "http://127.0.0.1:1", "--idle-exit", "0.5", "--json")) == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "records": PUSHES,
        "pushes": PUSHES,
        "unreadable": 0,
        "not_handed_on": PUSHES,
        "refused": 0,
        "points_refused": 0,
    }
    assert f"{PUSHES} pushes were not handed on, they are read again next time" in err
    everything_comes_again(cluster, tmp_path)


class Quiet(BaseHTTPRequestHandler):
    """A collector's answer to a push."""

    def log_message(self, *args):
        pass


def exported(cluster, collector):
    """What `receive` ends with, once it has exported to a collector that answers so."""
    with ThreadingHTTPServer(("127.0.0.1", 0), collector) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        status = main(words(cluster, "--otlp", f"http://127.0.0.1:{server.server_port}", "--idle-exit", "1"))
        server.shutdown()
    return status


def test_what_a_collector_refuses_is_counted_and_no_success(cluster, capsys):
    class Handler(Quiet):
        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_error(404)

    assert exported(cluster, Handler) == 1
    out, err = capsys.readouterr()
    counts = f"{PUSHES} records, {PUSHES} pushes, 0 unreadable, 0 not handed on, {PUSHES} refused, 0 points refused"
    assert out == f"{counts}\n"
    assert f"{PUSHES} pushes are lost: the collector does not want them" in err


def test_points_that_a_collector_does_not_want_of_what_it_takes_are_no_success(cluster, capsys):
    """All of them may be too old, say: it takes every export, and keeps nothing."""
    posted = []

    class Handler(Quiet):
        def do_POST(self):
            posted.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(b'{"partialSuccess": {"rejectedDataPoints": "7", "errorMessage": "too old"}}')

    assert exported(cluster, Handler) == 1
    out, err = capsys.readouterr()
    assert out.endswith(f" 0 not handed on, 0 refused, {7 * len(posted)} points refused\n")
    assert f"{7 * len(posted)} points are lost: the collector took their pushes, but does not want them" in err


def read(url):
    with urllib.request.urlopen(url, timeout=60) as response:
        return response.read().decode()


def test_a_process_that_is_killed_loses_nothing(cluster, tmp_path):
    member = tmp_path / "member.properties"
    member.write_text("group.instance.id=1\n")  # who comes after it takes its place at once
    folder = tmp_path / "pushes"
    with started(cluster, "--jsonl", folder, "--command-config", member) as process:
        soon(lambda: folder.exists() and any(file.stat().st_size for file in folder.iterdir()))
        time.sleep(2.5)  # as above
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    assert not list(folder.glob("telemetry-*")), "a file under way is not there for those who read the directory"
    everything_comes_again(cluster, folder, "--command-config", member)


PROTOCOLS = {
    "eager": "",
    "cooperative": "partition.assignment.strategy=cooperative-sticky\n",
    "consumer": "group.protocol=consumer\n",
}


@pytest.fixture(params=PROTOCOLS)
def protocol(request, tmp_path):
    file = tmp_path / "protocol.properties"
    file.write_text(PROTOCOLS[request.param])
    return "--command-config", file


def test_what_is_still_there_of_what_it_has_missed_is_read(cluster, protocol, tmp_path):
    """Away for longer than the topic keeps: its place is gone, and it is no new group, which begins at the end."""
    ends = [*protocol, "--idle-exit", "1.5", "--jsonl"]
    assert main(words(cluster, *ends, tmp_path / "before")) == 0
    produce(cluster, range(100, 110))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (deleted,) = admin.delete_records([confluent_kafka.TopicPartition("telemetry", 0, PUSHES + 5)]).values()
    deleted.result(30)
    asked = words(cluster, *ends, tmp_path / "after")
    asked.remove("--from-beginning")
    assert main(asked) == 0
    assert clients_in(tmp_path / "after") == {f"c{number}" for number in range(105, 110)}


def test_a_new_group_begins_at_the_end(cluster, protocol, tmp_path):
    folder = tmp_path / "pushes"
    with run_apart(words_of_a_new_group(cluster, "--jsonl", folder, *protocol)) as process:
        numbers = count(100)
        soon(lambda: produce(cluster, [next(numbers)]) or any(file.stat().st_size for file in folder.glob("*")))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert clients_in(folder)
    assert not clients_in(folder) & EVERYBODY


def test_a_new_group_goes_on_where_it_has_begun(cluster, protocol, tmp_path):
    """Nothing has come since, so that nothing was read that could be committed."""
    ends = [*protocol, "--idle-exit", "1.5", "--jsonl"]
    assert main(words_of_a_new_group(cluster, *ends, tmp_path / "before")) == 0
    produce(cluster, range(100, 110))
    assert main(words_of_a_new_group(cluster, *ends, tmp_path / "after")) == 0
    assert not clients_in(tmp_path / "before")
    assert clients_in(tmp_path / "after") == {f"c{number}" for number in range(100, 110)}


def test_partitions_that_come_later_are_read_from_their_beginning(cluster, protocol, tmp_path):
    ends = [*protocol, "--idle-exit", "1.5", "--jsonl"]
    assert main(words_of_a_new_group(cluster, *ends, tmp_path / "before")) == 0
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    (made,) = admin.create_partitions([NewPartitions("telemetry", 2)]).values()
    made.result(30)
    produce(cluster, range(100, 110), partition=1)
    assert main(words_of_a_new_group(cluster, *ends, tmp_path / "after")) == 0
    assert clients_in(tmp_path / "after") == {f"c{number}" for number in range(100, 110)}


def test_a_topic_that_is_made_later_is_read_from_its_beginning(cluster, protocol, tmp_path):
    folder = tmp_path / "pushes"
    quick = tmp_path / "quick.properties"
    quick.write_text(protocol[1].read_text() + "topic.metadata.refresh.interval.ms=4000\n")
    asked = words_of_a_new_group(cluster, "--jsonl", folder, "--idle-exit", "12", "--command-config", quick)
    asked[asked.index("telemetry")] = "later"
    with run_apart(asked) as process:
        assert "no topic later yet" in process.stderr.readline()
        produce(cluster, range(10), topic="later")
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert clients_in(folder) == {f"c{number}" for number in range(10)}


class FullDisk:
    """`os`, but that nothing can be written."""

    def __init__(self, write):
        self.write = write

    def __getattr__(self, name):
        return getattr(os, name)


ROLLS = files.ParquetWriter.__init__.__kwdefaults__


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_disk_that_is_full_ends_it_and_nothing_of_it_is_committed(cluster, kind, tmp_path, capsys, monkeypatch):
    folder = tmp_path / "full"
    writes = []

    def full(*_):
        writes.append(1)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        if kind == "jsonl":
            patch.setattr(files, "os", FullDisk(full))
        if kind == "parquet":
            schema, _ = files._parquet()
            patch.setattr(files, "_parquet", lambda: (schema, full))
            patch.setattr(files.ParquetWriter.__init__, "__kwdefaults__", {**ROLLS, "roll_after_ms": 1})
        assert main(words(cluster, f"--{kind}", folder, "--idle-exit", "30", "--json")) == 1
    assert writes
    out, err = capsys.readouterr()
    counts = json.loads(out)
    assert counts["records"] == counts["pushes"] == counts["not_handed_on"] > 0
    assert f"{counts['pushes']} pushes were not handed on, they are read again next time" in err
    assert err.count("could not be written") <= 1, "by logging's handler, where pytest has not taken its place"
    assert "Traceback" not in err
    everything_comes_again(cluster, tmp_path)


def test_a_disk_smaller_than_what_is_to_come_has_each_push_once(cluster, tmp_path, monkeypatch):
    """What it had room for is committed; the next run, when room has been made, goes on behind it."""
    written = []

    def room_for_eight(file, lines):
        if len(written) == 8:
            raise OSError(28, "No space left on device")
        written.append(lines)
        return os.write(file, lines)

    statuses = []
    for number in range(3):
        written.clear()
        with monkeypatch.context() as patch:
            patch.setattr(files, "os", FullDisk(room_for_eight))
            statuses.append(main(words(cluster, "--jsonl", tmp_path / str(number), "--idle-exit", "1.5")))
    assert statuses == [1, 1, 0]
    found = [clients_in(tmp_path / str(number)) for number in range(3)]
    assert [len(clients) for clients in found] == [8, 8, 4]
    assert set().union(*found) == EVERYBODY


def member_of(cluster):
    """Another receiver in the same group, which is told of its partitions and reads nothing."""
    conf = {"group.id": "kclient-quota-receive", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    return confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, **conf})


@pytest.mark.parametrize("collector", ["there", "away"])
def test_a_rebalance_has_nothing_read_twice_that_can_be_handed_on_before(cluster, collector, tmp_path):
    """With files of a minute all of it came again, into files and onto a page that adds up what clients push.

    Nothing is committed while a collector is away, but who gets its partitions back knows what it has read of them.
    """
    folder = tmp_path / "pushes"
    away = ("--otlp", "http://127.0.0.1:1") if collector == "away" else ()
    with started(cluster, "--jsonl", folder, "--metrics-port", "0", "--json", *away) as process:
        soon(lambda: folder.exists() and any(file.stat().st_size for file in folder.iterdir()))
        other = member_of(cluster)
        assigned = []
        other.subscribe(["telemetry"], on_assign=lambda _, parts: assigned.append(parts))
        while not assigned:
            other.poll(0.1)
        other.close()
        time.sleep(2.5)  # whoever stays reads again what it has to
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    counts = json.loads(out.splitlines()[-1])
    assert clients_in(folder) == EVERYBODY, err
    assert counts["pushes"] == PUSHES, err
