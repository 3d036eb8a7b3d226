"""What a setting would buy, in exact numbers: a batch takes 61 bytes, and for each message what the codec says."""

import pytest
from kclient_telemetry.compression import CompressionType

from kclient_quota.pacing.sending import worth as worths
from kclient_quota.pacing.sending.worth import SAMPLE, Worth, worth

NONE, ZSTD, LZ4, GZIP = CompressionType.NONE, CompressionType.ZSTD, CompressionType.LZ4, CompressionType.GZIP


@pytest.fixture
def each(monkeypatch):
    """Bytes of a message by codec; all of them are there."""
    sizes = {NONE: 100, ZSTD: 20, LZ4: 30, GZIP: 10}

    def build(batch, *, compression=NONE):
        assert batch
        return b"." * (61 + sizes[compression] * len(batch))

    monkeypatch.setattr(worths, "build_batch", build)
    monkeypatch.setattr(worths, "is_available", lambda _: True)
    return sizes


def messages(count=SAMPLE):
    return list(range(count))


def test_a_sample_is_of_a_hundred():
    assert SAMPLE == 100


def test_the_best_compressor_by_what_a_request_takes(each):
    """89 bytes around a batch of 61 and ten messages: 115 each, 35 with zstd, 45 with lz4."""
    found = worth(messages(), compression="none", together=10)
    assert found == Worth("compression.type=zstd", 115 / 35, 10, 1_061 / 261, 100)
    each[LZ4] = 19
    found = worth(messages(), compression="None", together=10)
    assert found == Worth("compression.type=lz4", 115 / 34, 10, 1_061 / 251, 100)
    each[LZ4] = 20
    assert worth(messages(), compression="none", together=10).setting == "compression.type=zstd"


def test_what_is_left_over_is_a_batch_too(each):
    """Ten, ten and five: 2,950 bytes of 25 messages."""
    found = worth(messages(25), compression="none", together=10)
    assert found == Worth("compression.type=zstd", pytest.approx(2_950 / 950), 10, 1_061 / 261, 25)
    assert worths._bytes_each(messages(25), 10, NONE) == 118.0


@pytest.mark.parametrize(
    ("together", "count"), [(0.2, 1), (1.4, 1), (1.6, 2), (2.5, 2), (3.5, 4), (11.6, 12), (12.6, 12), (500.0, 12)]
)
def test_batches_are_as_large_as_they_are_on_average_and_as_the_sample_at_most(each, together, count):
    each[ZSTD] = 1
    assert worth(messages(12), compression="none", together=together).together == count


@pytest.mark.parametrize(("count", "is_enough"), [(9, False), (10, True), (0, False)])
def test_fewer_than_ten_messages_tell_nothing(each, count, is_enough):
    assert (worth(messages(count), compression="none", together=5) is not None) == is_enough


def test_exactly_one_and_a_half_times_is_much(each):
    """Ten messages take 2,250 bytes, and 1,500 with zstd."""
    each[NONE], each[ZSTD], each[LZ4] = 210, 135, 999
    assert worth(messages(10), compression="none", together=10) == Worth(
        "compression.type=zstd", 1.5, 10, 2_161 / 1_411, 10
    )
    each[ZSTD] = 136
    assert worth(messages(10), compression="none", together=10) is None


def test_waiting_for_more_messages(each):
    """Alone a message takes 170 with zstd; ten of them 35 each."""
    found = worth(messages(), compression="zstd", together=1, most_together=10)
    assert found == Worth("linger.ms=100", 170 / 35, 10, 1_061 / 261, 100)
    found = worth(messages(), compression="zstd", together=1, most_together=10, more_by="linger.ms=7")
    assert found.setting == "linger.ms=7"
    assert worth(messages(12), compression="zstd", together=1, most_together=99).together == 12
    for most in (None, 0, 1):
        assert worth(messages(), compression="zstd", together=1, most_together=most) is None
    assert worth(messages(), compression="zstd", together=1, most_together=2).times == pytest.approx(170 / 95)


def test_what_buys_more_is_told(each):
    """Alone: 250 bytes, 170 with zstd; a hundred together 101.5."""
    assert worth(messages(), compression="none", together=1, most_together=100).setting == "linger.ms=100"
    each[ZSTD], each[NONE] = 1, 200
    assert worth(messages(), compression="none", together=1, most_together=100).setting == "compression.type=zstd"


def test_only_what_is_not_compressed_yet_is_told_to_compress(each):
    for compression in ("zstd", "lz4", "gzip", "brotli"):
        assert worth(messages(), compression=compression, together=50) is None


def test_only_what_there_is_a_library_for_is_tried(each, monkeypatch):
    monkeypatch.setattr(worths, "is_available", lambda codec: codec is not ZSTD)
    assert worth(messages(), compression="none", together=10).setting == "compression.type=lz4"
    assert worth(messages(), compression="zstd", together=1, most_together=50) is None
    monkeypatch.setattr(worths, "is_available", lambda codec: codec is NONE)
    assert worth(messages(), compression="none", together=10) is None
    assert worth(messages(), compression="none", together=1, most_together=10).times == pytest.approx(250 / 115)


@pytest.mark.parametrize(("ratio", "told"), [(1.05, "t compress 1.1 : 1"), (1.04, "t do not compress"), (4.14, None)])
def test_what_is_told_to_people(ratio, told):
    said = Worth("linger.ms=100", 2.04, 7, ratio, 100).sentence("t")
    assert said == (
        f"{told or 't compress 4.1 : 1'} in batches of 7; linger.ms=100 would send 2.0 times the messages "
        "(measured on 100)"
    )
