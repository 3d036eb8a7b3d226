"""Rows, files and the queue before them."""

import json
import os
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from kclient_telemetry.metric import HistogramValue, MetricKind, Point, PointKey, PushPoint
from kclient_telemetry.otlp import encode
from kclient_telemetry.receiver.fanout import FanOut, ReceivedPush
from kclient_telemetry.receiver.files import JsonLinesWriter, ParquetWriter
from kclient_telemetry.receiver.plugin import AuthorizableRequestContext, ClientTelemetryContext, ClientTelemetryPayload
from kclient_telemetry.receiver.queued import QUEUE_BYTES, QueuedSink
from kclient_telemetry.receiver.rows import COLUMNS, rows_of

PAYLOADS = Path(__file__).parent / "payloads"
NOW = 1_800_000_000_000


class Keep:
    def __init__(self):
        self.pushes = []

    def accept(self, push):
        self.pushes.append(push)

    def close(self, timeout_ms):
        pass


def received(data, *, terminating=False, at_ms=NOW):
    sink = Keep()
    context = ClientTelemetryContext(30_000, AuthorizableRequestContext(client_id="orders", broker_id=3))
    payload = ClientTelemetryPayload(UUID(int=0x0123456789ABCDEFFEDCBA9876543210), terminating, data)
    FanOut([sink], unix_ms=lambda: at_ms).export_metrics(context, payload)
    return sink.pushes[0]


def real(name, **options):
    return received((PAYLOADS / f"{name}.bin").read_bytes(), **options)


def test_rows_of_a_real_push():
    rows = list(rows_of(real("librdkafka-consumer-0", terminating=True)))
    assert len(rows) == 15
    row = {row.metric: row for row in rows}["org.apache.kafka.consumer.connection.creation.total"]
    assert (row.kind, row.temporality, row.monotonic, row.terminating) == ("sum", "delta", True, True)
    assert (row.client_id, row.broker_id, row.principal, row.cluster_id) == ("orders", "3", "User:ANONYMOUS", None)
    assert (row.received_unix_ms, row.push_interval_ms, row.resource) == (NOW, 30_000, {"group_id": "g"})
    assert row.client_instance_id == "ASNFZ4mrze_-3LqYdlQyEA"
    nodes = [row for row in rows if row.attributes]
    assert {key for row in nodes for key in row.attributes} == {"node.id"}


def test_rows_of_javas_push_have_no_nan():
    rows = list(rows_of(real("java-producer-0")))
    assert len(rows) == 108
    assert len({row.metric for row in rows}) == 96
    latency = [row for row in rows if row.metric == "org.apache.kafka.producer.node.request.latency.max"]
    assert None in [row.value for row in latency]
    assert all(row.kind in {"gauge", "sum"} for row in rows)
    assert list(rows_of(real("librdkafka-producer-cumulative-0")))[1].temporality == "cumulative"


def histogram_push():
    value = HistogramValue((1.0,), (2, 3), 9.0)
    attributes = (("ok", True), ("topic", "t"))
    point = Point(PointKey("h", attributes), MetricKind.HISTOGRAM, value)
    return received(encode([PushPoint(point, value, 5, 6, delta=True)], (), 0).payload)


def test_rows_of_histograms():
    (row,) = rows_of(histogram_push())
    assert (row.count, row.sum, row.bounds, row.bucket_counts, row.value) == (5, 9.0, [1.0], [2, 3], None)
    assert (row.start_unix_nano, row.time_unix_nano, row.attributes) == (
        5_000_000,
        6_000_000,
        {"ok": "true", "topic": "t"},
    )


def complete(folder):
    return sorted(path for path in folder.iterdir() if not path.name.startswith("_"))


def test_json_lines_are_complete_before_they_get_their_name(tmp_path):
    writer = JsonLinesWriter(tmp_path / "deep" / "er", roll_after_ms=1_000)
    folder = tmp_path / "deep" / "er"
    writer.write(received(b""))
    assert list(folder.iterdir()) == []
    writer.write(real("java-producer-0"))
    writer.write(real("librdkafka-consumer-0"))
    assert complete(folder) == []
    writer.tick(NOW + 999)
    assert complete(folder) == []
    writer.tick(NOW + 1_000)
    (path,) = complete(folder)
    lines = [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]
    assert len(lines) == 108 + 15
    assert tuple(lines[0]) == COLUMNS
    assert lines[0]["metric"].startswith("org.apache.kafka.")
    writer.tick(NOW + 9_999)
    writer.close()
    assert len(list(folder.iterdir())) == 1


def test_json_lines_roll_by_size_and_never_meet_another_writers(tmp_path):
    writers = [JsonLinesWriter(tmp_path, roll_bytes=1) for _ in range(2)]
    for writer in writers:
        writer.write(histogram_push())
        writer.write(histogram_push())
    assert len(complete(tmp_path)) == 4


def test_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    writer = ParquetWriter(tmp_path, roll_rows=200, roll_after_ms=1_000)
    writer.write(real("java-producer-0"))
    writer.write(histogram_push())
    writer.tick(NOW + 999)
    assert complete(tmp_path) == []
    writer.tick(NOW + 1_000)
    (path,) = complete(tmp_path)
    rows = parquet.read_table(path).to_pylist()
    assert len(rows) == 109
    expected = [row.as_dict() for push in (real("java-producer-0"), histogram_push()) for row in rows_of(push)]
    for row, wanted in zip(rows, expected, strict=True):
        assert row | {"attributes": dict(row["attributes"]), "resource": dict(row["resource"])} == wanted
    writer.write(real("java-producer-0"))
    writer.write(real("java-producer-0"))
    assert len(complete(tmp_path)) == 2
    writer.close()
    assert len(list(tmp_path.iterdir())) == 2


WRITERS = pytest.mark.parametrize("writer_type", [JsonLinesWriter, ParquetWriter])


@WRITERS
@pytest.mark.parametrize("at_ms", [NOW - 7 * 86_400_000, NOW + 7 * 86_400_000, -1])
def test_a_file_is_as_old_as_it_has_been_under_way_whatever_its_pushes_say(tmp_path, writer_type, at_ms):
    push = received((PAYLOADS / "librdkafka-consumer-0.bin").read_bytes(), at_ms=at_ms)
    writer = writer_type(tmp_path, roll_after_ms=1_000)
    for round_ms in (0, 5_000):
        writer.tick(NOW + round_ms)
        writer.write(push)
        writer.tick(NOW + round_ms + 999)
        writer.write(push)
        assert len(complete(tmp_path)) == round_ms // 5_000
        writer.tick(NOW + round_ms + 1_000)
    assert len(complete(tmp_path)) == 2


@WRITERS
def test_a_clock_that_is_put_back_keeps_no_file_open(tmp_path, writer_type):
    writer = writer_type(tmp_path, roll_after_ms=1_000)
    writer.write(real("librdkafka-consumer-0"))
    writer.tick(NOW - 86_400_000)
    writer.tick(NOW - 86_400_000 + 999)
    assert complete(tmp_path) == []
    writer.tick(NOW - 86_400_000 + 1_000)
    assert len(complete(tmp_path)) == 1


@WRITERS
def test_what_has_long_been_in_a_topic_goes_into_one_file(tmp_path, writer_type):
    sink = QueuedSink(writer_type(tmp_path))
    for _ in range(20):
        sink.accept(real("librdkafka-consumer-0", at_ms=NOW - 10 * 365 * 86_400_000))
    sink.close(10_000)
    assert (sink.counters.written, len(complete(tmp_path))) == (20, 1)


@WRITERS
def test_files_are_completed_when_asked_and_others_follow(tmp_path, writer_type):
    sink = QueuedSink(writer_type(tmp_path))
    for files in (1, 2):
        sink.accept(real("librdkafka-consumer-0"))
        sink.complete(60_000)
        assert (sink.counters.written, len(complete(tmp_path))) == (files, files)
    sink.complete(60_000)
    sink.close(60_000)
    sink.complete(60_000)
    assert len(complete(tmp_path)) == 2


def test_parquet_is_written_when_what_is_collected_is_large(tmp_path):
    push = real("java-producer-0")
    writer = ParquetWriter(tmp_path, roll_bytes=3 * push.held_bytes)
    for number in range(1, 10):
        writer.write(push)
        assert writer.unfinished == number % 3
    assert len(complete(tmp_path)) == 3


def test_one_push_of_very_many_points_is_written_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr("kclient_telemetry.receiver.files.ROLL_ROWS", 50)
    writer = ParquetWriter(tmp_path, roll_rows=10)
    monkeypatch.setattr("kclient_telemetry.receiver.files.rows_of", lambda push: iter([row_of(push)] * 120))
    writer.write(real("java-producer-0"))
    assert writer.unfinished == 0
    assert [pq.read_metadata(file).num_rows for file in sorted(tmp_path.iterdir())] == [50, 50, 20]


def row_of(push):
    return next(iter(rows_of(push)))


def test_a_json_line_that_finds_the_disk_full_leaves_nothing(tmp_path, monkeypatch):
    push, writer = real("java-producer-0"), JsonLinesWriter(tmp_path)
    writer.write(push)
    (file,) = tmp_path.iterdir()
    before = file.read_bytes()
    real_write = os.write

    def full(descriptor, data):
        if len(data) < 1_000:
            raise OSError(28, "No space left on device")
        return real_write(descriptor, data[: len(data) - 999])

    with monkeypatch.context() as patch:
        patch.setattr("kclient_telemetry.receiver.files.os.write", full)
        with pytest.raises(OSError, match="No space"):
            writer.write(push)
    assert (file.read_bytes(), writer.unfinished) == (before, 1)
    writer.write(push)
    writer.close()
    assert (file.exists(), writer.unfinished, writer.lost) == (False, 0, 0)
    (file,) = tmp_path.iterdir()
    assert file.read_bytes() == before * 2


@pytest.mark.parametrize("kind", [JsonLinesWriter, ParquetWriter])
def test_the_push_whose_file_cannot_be_completed_is_counted_by_whoever_writes_it(tmp_path, monkeypatch, kind):
    """It was counted twice, and what had been written before it was read, and written, again."""
    push, writer = real("java-producer-0"), kind(tmp_path)
    writer.write(push)
    writer.write(push)
    writer._roll_bytes = 1

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.rename", full)
    with pytest.raises(OSError, match="No space"):
        writer.write(push)
    assert (writer.unfinished, writer.lost) == (0, 2)


def test_parquet_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"pip install 'kclient-quota\[parquet\]'"):
        ParquetWriter(tmp_path)


@dataclass
class Queued:
    number: int
    held_bytes: int = 100


class Writer:
    def __init__(self, error=None):
        self.written = []
        self.error = error
        self.ticks = 0
        self.closed = threading.Event()
        self.gate = threading.Event()

    def write(self, push):
        assert self.gate.wait(60)
        if self.error:
            raise self.error
        self.written.append(push)

    def tick(self, now_unix_ms):
        self.ticks += now_unix_ms > NOW - 10**12

    def close(self):
        self.closed.set()


def test_pushes_are_written_by_a_thread_and_all_of_them_before_closing():
    writer = Writer()
    sink = QueuedSink(writer, queue_bytes=1_000)
    for number in range(5):
        sink.accept(Queued(number))
    writer.gate.set()
    sink.close(60_000)
    assert [push.number for push in writer.written] == [0, 1, 2, 3, 4]
    assert writer.closed.is_set()
    assert writer.ticks >= 5
    sink.accept(Queued(6))
    counters = sink.counters
    assert (counters.received, counters.written, counters.dropped, counters.failed) == (6, 5, 1, 0)


def test_what_is_in_no_whole_file_yet_is_said_to_be_not_written(caplog):
    writer = Writer()
    writer.gate.set()
    writer.unfinished = 3  # of one whose close() takes longer than there is time
    begun, done = threading.Event(), threading.Event()
    writer.close = lambda: begun.set() or done.wait(60)
    sink = QueuedSink(writer)
    for number in range(3):
        sink.accept(Queued(number))
    sink.complete(0)
    assert begun.wait(60)
    sink.close(1)
    done.set()
    assert "3 pushes of client telemetry were not written before closing" in caplog.text


def test_the_last_file_has_nothing_left_to_load(tmp_path):
    program = """
import sys
from kclient_telemetry.receiver.files import ParquetWriter
from tests.unit.telemetry.test_telemetry_rows import Path, real
writer = ParquetWriter(Path(sys.argv[1]))
before = set(sys.modules)
writer.write(real("librdkafka-consumer-0"))
writer.close()
print(sorted(set(sys.modules) - before))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "[]\n"


def test_a_full_queue_drops_and_counts_and_a_failing_writer_goes_on(caplog):
    writer = Writer(OSError("disk full"))
    sink = QueuedSink(writer, queue_bytes=250)
    for number in range(10):
        sink.accept(Queued(number))
    sink.close(10)
    writer.gate.set()
    sink.close(60_000)
    counters = sink.counters
    assert counters.received == 10
    assert counters.written == 0
    assert counters.failed == 2, "250 bytes hold two, the one that is being written among them"
    assert counters.dropped == 10 - counters.failed
    assert caplog.text.count("client telemetry is dropped") == 1
    assert "disk full" in caplog.text


def test_a_sink_that_does_not_go_on_writes_nothing_behind_what_it_has_lost():
    """Its reader may so commit all before."""
    asked = []

    def has_no_room_for_the_third(push):
        asked.append(push)
        if len(asked) == 3:
            raise OSError(28, "No space left on device")

    writer = Writer()
    writer.write = has_no_room_for_the_third
    sink = QueuedSink(writer, goes_on=False)
    for number in range(5):
        sink.accept(Queued(number))
    sink.close(60_000)
    assert (sink.counters.written, sink.counters.failed) == (2, 3)
    assert len(asked) == 3


def test_a_cause_is_told_once_and_what_it_costs_is_counted(caplog):
    writer = Writer(OSError(28, "No space left on device"))
    writer.gate.set()
    sink = QueuedSink(writer, queue_bytes=1_000_000)
    for number in range(1_500):
        sink.accept(Queued(number))
    sink.close(60_000)
    assert sink.counters.failed == 1_500
    lines = [record.getMessage() for record in caplog.records]
    line = "client telemetry could not be written: [Errno 28] No space left on device; make room, or have it "
    assert [each.startswith(line) for each in lines] == [True, True], "the first and the thousandth after it"
    assert "Traceback" not in caplog.text
    broken = QueuedSink(Writer(TypeError("no such field")))
    broken._writer.gate.set()
    broken.accept(Queued(0))
    broken.close(60_000)
    assert caplog.text.count("Traceback") == 1, "what is no matter of files has to be mended in code"


def test_what_waits_is_bounded_by_its_bytes_not_its_number():
    data = PushedBytes(b"x" * 682_000)
    writer = Writer()
    sink = QueuedSink(writer)
    for _ in range(10_000):
        sink.accept(data)
    held = sink.counters.received - sink.counters.dropped
    assert held * data.held_bytes <= QUEUE_BYTES
    assert held >= 40
    writer.gate.set()
    sink.close(60_000)


class PushedBytes:
    def __init__(self, data):
        context = ClientTelemetryContext(1, AuthorizableRequestContext())
        push = ReceivedPush(context, ClientTelemetryPayload(UUID(int=1), False, data), {}, data, NOW)
        self.held_bytes = push.held_bytes
        assert self.held_bytes >= 2 * len(data)
