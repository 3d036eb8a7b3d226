"""Planning of offset ranges, by brute force."""

import random

import pytest

from kclient_quota.errors import ConfigError
from kclient_quota.spark.kafka.offsets import Range, count, limited, parse_offsets, parse_timestamps, ranges, resolved
from kclient_quota.spark.kafka.options import Options

FIRST = {"t": {"0": 5, "1": 0}}
LAST = {"t": {"0": 50, "1": 7}}


def test_words_and_json():
    assert parse_offsets("o", "earliest") == "earliest"
    wanted = parse_offsets("o", '{"t": {"0": -2, "1": 3}}')
    assert resolved("o", wanted, FIRST, LAST) == {"t": {"0": 5, "1": 3}}
    assert resolved("o", parse_offsets("o", '{"t": {"0": -1, "1": -2}}'), FIRST, LAST) == {"t": {"0": 50, "1": 0}}
    assert resolved("o", "latest", FIRST, LAST) is LAST


@pytest.mark.parametrize("text", ["Earliest", "{", "[1]", '{"t": 3}', '{"t": {"x": 1}}', '{"t": {"0": null}}'])
def test_neither_words_nor_json(text):
    with pytest.raises(ConfigError, match="startingOffsets"):
        parse_offsets("startingOffsets", text)


def test_every_partition_is_named_once():
    with pytest.raises(ConfigError, match="partition 1 of t is missing"):
        resolved("o", {"t": {"0": 1}}, FIRST, LAST)
    with pytest.raises(ConfigError, match="partition 4 of t is not there"):
        resolved("o", {"t": {"0": 1, "1": 1, "4": 1}}, FIRST, LAST)


def test_timestamps_of_every_partition():
    text = '{"t": {"0": 1000, "1": 2000}}'
    assert parse_timestamps("startingOffsetsByTimestamp", text, FIRST) == {"t": {"0": 1000, "1": 2000}}
    with pytest.raises(ConfigError, match=r"startingOffsetsByTimestamp latest: write JSON such as .* in ms"):
        parse_timestamps("startingOffsetsByTimestamp", "latest", FIRST)
    with pytest.raises(ConfigError, match="o: partition 1 of t is missing; name every partition once"):
        parse_timestamps("o", '{"t": {"0": 1000}}', FIRST)


def test_offsets_are_counted_from_where_a_batch_begins():
    end = {"t": {"0": 50, "1": 7, "2": 9}}
    assert count({"t": {"0": 48, "1": 9}}, end, {"t": {"0": 5, "1": 0, "2": 4}}) == 2 + 0 + 5


@pytest.mark.parametrize(("text", "ms"), [("500ms", 500), ("10s", 10_000), ("15 m", 900_000), ("2H", 7_200_000)])
def test_durations(text, ms):
    assert Options({"maxtriggerdelay": text}, ["maxTriggerDelay"]).duration_ms("maxTriggerDelay") == ms


@pytest.mark.parametrize("text", ["15", "m", "-1s", "1 fortnight", "1.5h"])
def test_what_is_no_duration(text):
    with pytest.raises(ConfigError, match=f"maxTriggerDelay {text}: write a whole number and a unit of ms, s, m"):
        Options({"maxTriggerDelay": text}, ["maxTriggerDelay"]).duration_ms("maxTriggerDelay")
    assert Options({}, ["maxTriggerDelay"]).duration_ms("maxTriggerDelay") is None


def test_ranges_cover_everything_once():
    chance = random.Random(1)
    for _ in range(300):
        end = {t: {str(p): chance.randrange(40) for p in range(chance.randint(1, 12))} for t in "ab"}
        start = {t: {p: chance.randint(0, o) for p, o in of.items() if chance.random() < 0.9} for t, of in end.items()}
        least = chance.randrange(12)
        found = ranges(start, end, least)
        wanted = {
            (t, int(p), each)
            for t, of in end.items()
            for p, last in of.items()
            for each in range(start[t].get(p, 0), last)
        }
        covered = [(r.topic, r.partition, each) for r in found for each in range(r.start, r.end)]
        assert len(covered) == len(set(covered))
        assert set(covered) == wanted
        assert all(r.is_new == (str(r.partition) not in start[r.topic]) for r in found)
        assert all(r.start < r.end for r in found)


def test_pieces_are_as_many_as_asked_for():
    assert len(ranges({"t": {"0": 0}}, {"t": {"0": 100}}, 7)) == 7
    assert ranges({}, {"t": {"2": 3}}) == [Range("t", 2, 0, 3, True)]


def test_a_limit_is_kept_and_there_is_always_progress():
    chance = random.Random(2)
    for _ in range(500):
        first = {t: {str(p): chance.randrange(5) for p in range(chance.randint(1, 6))} for t in "ab"}
        end = {t: {p: o + chance.choice((0, 0, 1, 7, 500)) for p, o in of.items()} for t, of in first.items()}
        start = {t: {p: o for p, o in of.items() if chance.random() < 0.8} for t, of in first.items()}
        most = chance.choice((1, 2, 10, 100, 10_000))
        at, batches = start, 0
        waiting = sum(end[t][p] - o for t, of in first.items() for p, o in of.items())
        while True:
            reached = limited(at, end, first, most)
            moved = sum(reached[t][p] - at[t].get(p, first[t][p]) for t, of in end.items() for p in of)
            assert moved <= most
            assert all(at[t].get(p, 0) <= o <= end[t][p] for t, of in reached.items() for p, o in of.items())
            if moved == 0:
                break
            batches += 1
            at = reached
        assert reached == end
        assert batches == -(-waiting // most)
