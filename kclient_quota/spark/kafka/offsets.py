"""What of a topic a batch reads: offset ranges out of starts, ends and limits. Nothing here asks a broker.

Offsets are `{topic: {partition: offset}}` with partitions as text, as Spark's own Kafka source writes them in JSON.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql.datasource import InputPartition

from kclient_quota.errors import ConfigError

Offsets = dict[str, dict[str, int]]

TOPIC_IDS: Final = "#topic-ids"
"""Beside the topics of a checkpoint's offsets, where none can have that name: topic to its id, where brokers tell."""

EARLIEST: Final = "earliest"
LATEST: Final = "latest"


@dataclass
class Range(InputPartition):
    """Offsets of one partition from `start` up to `end`, which is not read.

    Attributes:
        is_new: the partition was not there before: it begins wherever its log begins.
    """

    topic: str
    partition: int
    start: int
    end: int
    is_new: bool = False


def parse_offsets(option: str, text: str) -> str | Offsets:
    """`earliest`, `latest` or JSON such as `{"telemetry": {"0": 23, "1": -2}}`; -2 and -1 stand for the two words.

    Raises:
        ConfigError: it is none of these.
    """
    if text in {EARLIEST, LATEST}:
        return text
    return _by_partition(text, f"{option} {text}: write {EARLIEST}, {LATEST} or JSON such as " + '{"topic": {"0": 23}}')


def parse_timestamps(option: str, text: str, there: Offsets) -> Offsets:
    """JSON such as `{"telemetry": {"0": 1800000000000}}`, ms since 1970 for every partition of `there`.

    Raises:
        ConfigError: it is none, or it does not name every partition once.
    """
    found = _by_partition(text, f'{option} {text}: write JSON such as {{"topic": {{"0": 1800000000000}}}}, in ms')
    _check_named(option, found, there)
    return found


def _by_partition(text: str, words: str) -> Offsets:
    try:
        return {str(t): {str(int(p)): int(o) for p, o in of.items()} for t, of in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(words) from error


def parted(offsets: Any) -> tuple[Offsets, dict[str, str]]:
    """The offsets that a checkpoint of this source holds, and the ids of their topics.

    Raises:
        ConfigError: it is none of this source.
    """
    ids: Any = {}
    if isinstance(offsets, dict) and isinstance(offsets.get(TOPIC_IDS), dict):
        ids = offsets[TOPIC_IDS]
        offsets = {topic: of for topic, of in offsets.items() if topic != TOPIC_IDS}
    check_offsets(offsets)
    return offsets, ids


def made_anew(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Topics that have another id: they were deleted, and made again under the same name."""
    return sorted(topic for topic, known in before.items() if now.get(topic, known) != known)


def check_offsets(offsets: Any) -> None:
    """Whether this is what a checkpoint of this source holds.

    Raises:
        ConfigError: it is not.
    """
    is_ours = isinstance(offsets, dict) and all(
        isinstance(of, dict) and all(str(p).isdigit() and isinstance(o, int) for p, o in of.items())
        for of in offsets.values()
    )
    if not is_ours:
        raise ConfigError(
            f"the checkpoint's offsets {json.dumps(offsets)} are not of this source, or of another version of it; "
            "start with a new checkpointLocation"
        )


def resolved(option: str, wanted: str | Offsets, first: Offsets, last: Offsets) -> Offsets:
    """The offsets that are meant.

    Args:
        option: for messages.
        wanted: of `parse_offsets`.
        first: where each partition's log begins.
        last: where it ends.

    Raises:
        ConfigError: a partition is missing, or one is named that is not there.
    """
    if wanted == EARLIEST:
        return first
    if wanted == LATEST:
        return last
    assert not isinstance(wanted, str), "parse_offsets knows no other words"
    _check_named(option, wanted, first)
    special = {-2: first, -1: last}
    return {t: {p: special[o][t][p] if o in special else o for p, o in of.items()} for t, of in wanted.items()}


def _check_named(option: str, wanted: Offsets, there: Offsets) -> None:
    named, known = ({(t, p) for t, of in offsets.items() for p in of} for offsets in (wanted, there))
    if named != known:
        topic, partition = min(named ^ known)
        words = "is not there" if (topic, partition) in named else "is missing"
        raise ConfigError(f"{option}: partition {partition} of {topic} {words}; name every partition once")


def walk(offsets: Offsets) -> Iterator[tuple[str, str, int]]:
    """(topic, partition, offset), sorted."""
    for topic in sorted(offsets):
        for partition in sorted(offsets[topic], key=int):
            yield topic, partition, offsets[topic][partition]


def ranges(start: Offsets, end: Offsets, least: int = 0) -> list[Range]:
    """What lies between, in at least `least` pieces where there is enough of it."""
    found = []
    for topic, partition, last in walk(end):
        known = start.get(topic, {}).get(partition)
        first = known or 0
        if last > first:
            found.append(Range(topic, int(partition), first, last, known is None))
    total = sum(each.end - each.start for each in found)
    return [piece for each in found for piece in _pieces(each, round(least * (each.end - each.start) / max(total, 1)))]


def _pieces(whole: Range, count: int) -> list[Range]:
    step = -(-(whole.end - whole.start) // max(count, 1))
    return [
        Range(whole.topic, whole.partition, at, min(at + step, whole.end), whole.is_new)
        for at in range(whole.start, whole.end, step)
    ]


def count(start: Offsets, end: Offsets, first: Offsets) -> int:
    """Offsets from where the batch begins (see `limited`) to where the logs end."""
    return sum(max(last - start.get(t, {}).get(p, first.get(t, {}).get(p, 0)), 0) for t, p, last in walk(end))


def limited(start: Offsets, end: Offsets, first: Offsets, most: int) -> Offsets:
    """`end`, or less of it: about `most` offsets, of every partition in proportion to what it has.

    Args:
        start: where the batch begins; partitions that are not in it begin at `first`.
        end: where the logs end.
        first: where the logs begin.
        most: offsets; at least one for somebody, so that there is always progress.
    """
    begins = {(t, p): start.get(t, {}).get(p, first.get(t, {}).get(p, 0)) for t, p, _ in walk(end)}
    waiting = {(t, p): max(last - begins[t, p], 0) for t, p, last in walk(end)}
    total = sum(waiting.values())
    if total <= most:
        return end
    taken = {key: count * most // total for key, count in waiting.items()}
    left = max(most, 1) - sum(taken.values())
    for key in sorted(waiting, key=lambda key: (-(waiting[key] * most % total), key)):
        if left and taken[key] < waiting[key]:
            taken[key] += 1
            left -= 1
    return {t: {p: begins[t, p] + taken[t, p] for p in of} for t, of in end.items()}
