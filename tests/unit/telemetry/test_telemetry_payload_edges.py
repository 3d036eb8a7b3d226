"""What fits into a push to the byte, who waits for the next one, and how a learnt bound shrinks and grows."""

import itertools
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from kclient_telemetry.client.payload import Payload, PayloadBuilder
from kclient_telemetry.client.subscription import ClientSubscription, Selection, selection_of
from kclient_telemetry.compression import CompressionType
from kclient_telemetry.messages import PushTelemetryRequest
from kclient_telemetry.metric import MetricKind, Point, PointKey, PushPoint

ID = UUID(int=7)
ZSTD, GZIP, NO_COMPRESSION = CompressionType.ZSTD, CompressionType.GZIP, CompressionType.NONE
TOO_LARGE, UNSUPPORTED = 118, 76
"""As from the wire: plain numbers."""
FOLLOWED = ClientSubscription(ID, 5, 1_000, (), 0, True, selection_of(["*"]))


class Source:
    """Gauges of one size."""

    resource = ()

    def __init__(self, count: int) -> None:
        self.names = [f"gauge-{number:03}" for number in range(count)]
        self.taken: list[PushPoint] = []
        self.resets = 0

    def collect(self, selection: Selection, *, delta: bool, unix_ms: int) -> Sequence[PushPoint]:
        points = [Point(PointKey(name), MetricKind.GAUGE, 1) for name in self.names if selection.matches(name)]
        return [PushPoint(point, point.value, None, unix_ms, delta=False) for point in points]

    def acknowledge(self, points: Iterable[PushPoint]) -> None:
        self.taken.extend(points)

    def reset(self) -> None:
        self.resets += 1


def built(builder: PayloadBuilder, max_bytes: int = 0, accepted: tuple[int, ...] = (), unix_ms: int = 1_000) -> Payload:
    subscription = replace(FOLLOWED, telemetry_max_bytes=max_bytes, accepted_compression_types=accepted)
    payload = builder.build(subscription, unix_ms)
    assert payload is not None
    return payload


def names(payload: Payload) -> list[int]:
    return [int(point.point.key.name.removeprefix("gauge-")) for point in payload.points]


def push(size: int, kind: int = 0) -> PushTelemetryRequest:
    return PushTelemetryRequest(ID, 5, False, kind, bytes(size))


def size_of(count: int) -> int:
    return len(built(PayloadBuilder(Source(count))).metrics)


def padded(size: int):
    return lambda data, kind: bytes(size)


def test_compressed_bytes_may_be_as_many_as_the_bound_and_no_more() -> None:
    plain = size_of(1)
    for size, kind in ((plain - 1, ZSTD), (plain, ZSTD), (plain + 1, NO_COMPRESSION)):
        payload = built(PayloadBuilder(Source(1), padded(size)), plain, (4, 1))
        assert (payload.compression_type, len(payload.metrics)) == (kind, size if kind is ZSTD else plain)


def test_without_a_bound_compressed_bytes_may_be_more_than_they_were() -> None:
    payload = built(PayloadBuilder(Source(1), padded(9_999)), 0, (1,))
    assert (payload.compression_type, len(payload.metrics)) == (GZIP, 9_999)
    assert names(payload) == [0]


def test_plain_bytes_may_be_as_many_as_the_bound_and_no_more() -> None:
    whole = size_of(3)
    for bound, sent, deferred in ((whole - 1, [0, 1], 1), (whole, [0, 1, 2], 0), (whole + 1, [0, 1, 2], 0)):
        builder = PayloadBuilder(Source(3))
        assert names(built(builder, bound)) == sent
        assert (builder.counters.deferred_points, builder.counters.dropped_points) == (deferred, 0)


def test_a_bound_of_a_byte_is_a_bound() -> None:
    builder = PayloadBuilder(Source(3), padded(1))
    payload = built(builder, 1, (4,))
    assert (payload.metrics, payload.points, payload.compression_type) == (b"", (), NO_COMPRESSION)
    assert (builder.counters.deferred_points, builder.counters.dropped_points) == (0, 3)
    built(builder, 1)
    assert builder.counters.dropped_points == 6


def test_who_waited_longest_goes_first() -> None:
    builder = PayloadBuilder(Source(5))
    bound = size_of(2) + 16
    sent = [names(built(builder, bound)) for _ in range(6)]
    assert sent == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 0], [4, 1]]  # of those who waited alike, as collected
    assert builder.counters.deferred_points == 6 * 3
    assert names(built(builder, 0)) == [2, 0, 3, 1, 4]
    assert names(built(builder, 0)) == [0, 1, 2, 3, 4]  # since everybody had a turn


MINUTES = itertools.count(60_000, 60_000)


def learnt(builder: PayloadBuilder, caplog: pytest.LogCaptureFixture, max_bytes: int = 0) -> int:
    """The bound that a push tells that it was cut short by; 0 when it was not."""
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        built(builder, max_bytes, unix_ms=next(MINUTES))  # a bound is told of once in each
    found = re.search(r"a push may have (\d+) bytes", caplog.text)
    return int(found[1]) if found else 0


def test_a_bound_is_told_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """Brokers may ask for ten pushes a second; there was a line for each."""
    builder = PayloadBuilder(Source(200))
    told = []
    for unix_ms in (1_000, 1_100, 60_999, 61_000, 61_100, 500, 600):  # the clock may be put back
        caplog.clear()
        built(builder, 2_000, unix_ms=unix_ms)
        told.append(len(caplog.records))
    assert told == [1, 0, 0, 1, 0, 1, 0]
    built(builder, 1_000, unix_ms=600)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("refused", "bound"),
    [(1, 1_024), (2_047, 1_024), (2_048, 1_024), (2_049, 1_024), (2_050, 1_025), (5_001, 2_500), (6_000, 3_000)],
)
def test_half_of_what_was_too_large_is_sent_and_a_kibibyte_at_least(
    refused: int, bound: int, caplog: pytest.LogCaptureFixture
) -> None:
    builder = PayloadBuilder(Source(200))
    builder.learn(TOO_LARGE, push(refused))
    assert learnt(builder, caplog) == bound
    builder.acknowledge(())
    assert learnt(builder, caplog) == bound + bound // 4
    builder.acknowledge(())
    assert learnt(builder, caplog) == bound + bound // 4 + (bound + bound // 4) // 4


def test_nothing_grows_before_a_push_was_cut_short(caplog: pytest.LogCaptureFixture) -> None:
    builder = PayloadBuilder(Source(200))
    builder.learn(TOO_LARGE, push(4_000))
    builder.acknowledge(())
    assert learnt(builder, caplog) == 2_000


def test_only_a_refusal_for_its_size_tells_anything_about_sizes(caplog: pytest.LogCaptureFixture) -> None:
    builder = PayloadBuilder(Source(200))
    for code in (-1, 0, UNSUPPORTED, 87, 89, 117, 119, 9_999):
        builder.learn(code, push(3_000))
        assert learnt(builder, caplog) == 0
    for empty in (b"", None):
        builder.learn(TOO_LARGE, replace(push(0), metrics=empty))
        assert learnt(builder, caplog) == 0


def test_what_was_learnt_holds_until_the_broker_has_another_bound(caplog: pytest.LogCaptureFixture) -> None:
    builder = PayloadBuilder(Source(200))
    assert learnt(builder, caplog, 5_000) == 5_000
    builder.learn(TOO_LARGE, push(4_000))
    assert [learnt(builder, caplog, 5_000) for _ in range(2)] == [2_000, 2_000]
    assert learnt(builder, caplog, 4_999) == 4_999  # a smaller one counts as well
    builder.learn(TOO_LARGE, push(4_000))
    assert learnt(builder, caplog, 4_999) == 2_000
    assert learnt(builder, caplog, 5_001) == 5_001
    builder.learn(TOO_LARGE, push(12_000))
    assert learnt(builder, caplog, 5_001) == 5_001  # the smaller of both
    assert learnt(builder, caplog, 0) == 0


def test_a_learnt_bound_grows_only_with_pushes_that_it_cut_short(caplog: pytest.LogCaptureFixture) -> None:
    source = Source(200)
    builder = PayloadBuilder(source)
    builder.learn(TOO_LARGE, push(4_000))
    source.names = source.names[:3]
    assert learnt(builder, caplog) == 0
    builder.acknowledge(())
    source.names = [f"gauge-{number:03}" for number in range(200)]
    assert learnt(builder, caplog) == 2_000
    source.names = ["gauge-0" + "x" * 3_000]
    assert learnt(builder, caplog) == 2_000  # nobody waits, but one is too large
    builder.acknowledge(())
    assert learnt(builder, caplog) == 2_500


def test_which_refusals_rule_a_codec_out() -> None:
    for code, ruled_out in ((UNSUPPORTED, True), (75, False), (77, False), (0, False), (TOO_LARGE, False)):
        builder = PayloadBuilder(Source(1), padded(5))
        builder.learn(code, push(9_000, 4))
        assert built(builder, 0, (4, 1)).compression_type is (GZIP if ruled_out else ZSTD)
    builder = PayloadBuilder(Source(1), padded(5))
    builder.learn(UNSUPPORTED, push(9, 0))  # it was not compressed at all
    assert built(builder, 0, (4, 1)).compression_type is ZSTD
    builder.learn(UNSUPPORTED, push(9, 1))
    assert built(builder, 0, (1, 4)).compression_type is ZSTD
    builder.learn(UNSUPPORTED, push(9, 4))
    assert built(builder, 0, (1, 4)).compression_type is NO_COMPRESSION
    assert builder.counters.compression_failures == 0


def test_every_codec_that_fails_is_counted_and_tried_once() -> None:
    tried = []

    def broken(data: bytes, kind: CompressionType) -> bytes:
        tried.append(kind)
        raise OSError

    builder = PayloadBuilder(Source(1), broken)
    for _ in range(2):
        assert built(builder, 0, (4, 1)).compression_type is NO_COMPRESSION
        assert builder.counters.compression_failures == 2
    assert tried == [ZSTD, GZIP]


def test_nothing_is_not_compressed() -> None:
    payload = built(PayloadBuilder(Source(0), padded(5)), 0, (4,))
    assert (payload.metrics, payload.compression_type, payload.points) == (b"", NO_COMPRESSION, ())


def test_takings_and_resets_reach_the_source() -> None:
    source = Source(2)
    builder = PayloadBuilder(source)
    payload = built(builder)
    builder.acknowledge(payload.points)
    assert source.taken == list(payload.points)
    builder.reset()
    assert source.resets == 1
