"""The journal: last values by key, through torn lines, flipped bits, and while it is rewritten."""

import json
import random

import pytest

from kclient_quota.broker.storage.disk import Disk
from kclient_quota.broker.storage.journal import MIN_STALE_LINES, Journal


def test_a_torn_journal_line_is_cut(tmp_path):
    path = tmp_path / "j"
    journal = Journal(path)
    journal.set("a", 1, value={"x": [1, None]})
    journal.set("b", None, value="ü")
    journal.close()
    with path.open("ab") as file:
        file.write(b'{"k":["c"],"v"')
    again = Journal(path)
    assert dict(again.items()) == {("a", 1): {"x": [1, None]}, ("b", None): "ü"}
    assert list(again.items("a")) == [(("a", 1), {"x": [1, None]})]
    again.set("c", value=1)
    again.close()
    assert Journal(path).get("c") == 1


def test_what_is_cut_off_of_a_journal_is_told(tmp_path, caplog):
    path = tmp_path / "j"
    journal = Journal(path)
    journal.set("a", value=1, twice=False)
    journal.close()
    data = path.read_bytes()
    for whole in (data, data[:-1]):
        path.write_bytes(whole)
        assert Journal(path).get("a") == 1
    assert not caplog.messages
    path.write_bytes(data + data[:12])
    assert Journal(path).get("a") == 1
    (said,) = caplog.messages
    assert "j: an unfinished last line of 12 bytes is cut off" in said


def test_a_stale_journal_is_rewritten_and_stays_true(tmp_path):
    path = tmp_path / "j"
    journal = Journal(path, stale_bytes=0)
    for number in range(3 * MIN_STALE_LINES):
        journal.set("offset", value=number)
        journal.set("offset", value=number)
    journal.set("gone", value=1)
    journal.set("gone", value=None)
    journal.close()
    lines = path.read_text().split()
    assert len(lines) <= 2 * (MIN_STALE_LINES + 5)
    assert all(json.loads(line) for line in lines)
    assert dict(Journal(path).items()) == {("offset",): 3 * MIN_STALE_LINES - 1}


class Replacing(Disk):
    """Counts how often a file has taken another's place."""

    count = 0

    def replace(self, source, target):
        self.count += 1
        super().replace(source, target)


@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_large_journal_is_rewritten_once_it_is_several_times_as_large(tmp_path, is_reopened):
    path = tmp_path / "j"
    journal = Journal(path, disk := Replacing(), stale_bytes=0)
    journal.set("topic", value="x" * 50_000)
    if is_reopened:
        journal.close()
        journal = Journal(path, disk, stale_bytes=0)
    for number in range(2 * MIN_STALE_LINES):
        journal.set("share", value=number, twice=False)
    assert (disk.count, path.stat().st_size < 4 * 100_000) == (0, True)
    for number in range(8 * MIN_STALE_LINES):
        journal.set("share", value=number, twice=False)
    assert (disk.count, path.stat().st_size < 4 * 100_000) == (1, True)
    journal.close()
    journal = Journal(path, disk, stale_bytes=0)
    assert journal.get("share") == 8 * MIN_STALE_LINES - 1
    journal.set("topic", value=None)
    for number in range(2 * MIN_STALE_LINES):
        journal.set("share", value=number, twice=False)
    assert (disk.count > 1, path.stat().st_size < 100_000) == (True, True), "it does not count what is gone"
    journal.close()


def test_cut_at_any_byte_a_journal_is_as_it_once_was(tmp_path):
    path = tmp_path / "j"
    journal, states, ends = Journal(path), [{}], [0]
    for key, value in (("a", 1), ("b", {"x": "ü"}), ("a", None), ("a", [2])):
        journal.set(key, value=value, twice=False)
        states.append(dict(journal.items()))
        ends.append(path.stat().st_size)
    journal.close()
    data = path.read_bytes()
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        again = Journal(path)
        # a line that is whole counts though its end is missing
        assert dict(again.items()) == states[sum(end - 1 <= cut for end in ends) - 1]
        again.set("more", value=cut)
        again.close()
        assert Journal(path).get("more") == cut
        assert not Journal(path).damaged_lines


def test_one_flipped_bit_costs_a_journal_nothing_that_was_written_twice(tmp_path):
    path = tmp_path / "j"
    journal = Journal(path)
    journal.set("format", value=2)
    journal.set("topic", "t", value={"id": "x", "partitions": [1, 2]})
    journal.set("topic", "u", value=None)
    journal.close()
    data = path.read_bytes()
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        again = Journal(path)
        assert dict(again.items()) == {("format",): 2, ("topic", "t"): {"id": "x", "partitions": [1, 2]}}, bit
        again.close()


def test_a_journal_is_rewritten_by_and_by_and_is_whole_at_every_moment(tmp_path):
    path, waiting, chance = tmp_path / "j", [], random.Random(3)
    journal = Journal(path, disk := Replacing(), stale_bytes=0, later=waiting.append)
    truth, written = {}, []

    def change(key, value):
        before = sum(file.stat().st_size for file in tmp_path.iterdir())
        journal.set("offset", key, value=value, twice=False)
        truth["offset", key] = value
        written.append(sum(file.stat().st_size for file in tmp_path.iterdir()) - before)

    for number in range(9 * MIN_STALE_LINES):
        change(number % MIN_STALE_LINES, [number])
        if (tmp_path / "j.new").exists():
            break
    while not disk.count:
        change(chance.randrange(2 * MIN_STALE_LINES), chance.choice([None, [-len(written)]]))
        if len(written) % 50 == 0:
            copy = tmp_path.with_name("copy")
            copy.write_bytes(path.read_bytes())
            assert dict(Journal(copy).items()) == {key: value for key, value in truth.items() if value is not None}
        if waiting and chance.random() < 0.1:
            waiting.pop()()
    assert max(written) < 102 * 2 * 100, "a hundred values and the change itself"
    assert not journal.damaged_lines
    assert dict(journal.items()) == dict(Journal(path).items())
    for number in range(100):
        change(number, [number])
    for work in waiting:
        work()
    journal.close()
    assert dict(Journal(path).items()) == {key: value for key, value in truth.items() if value is not None}


def test_a_journal_that_cannot_be_rewritten_goes_on(tmp_path, caplog):
    path = tmp_path / "j"
    journal = Journal(path, disk := Refusing(), stale_bytes=0)
    for number in range(9 * MIN_STALE_LINES):
        journal.set("offset", number % MIN_STALE_LINES, value=number, twice=False)
        disk.refuses = (tmp_path / "j.new").exists()
    assert "could not be made smaller" in caplog.text
    disk.refuses = False
    journal.close()
    assert len(dict(Journal(path).items())) == MIN_STALE_LINES


class Refusing(Disk):
    """Does not sync the file that would take another's place."""

    refuses = False

    def sync(self, fd):
        if self.refuses:
            raise OSError(5, "Input/output error")
        super().sync(fd)


def test_that_a_journal_was_damaged_is_known_after_it_was_rewritten(tmp_path):
    path = tmp_path / "j"
    journal = Journal(path, stale_bytes=0)
    journal.set("topic", "lost", value=1)
    journal.set("topic", "kept", value=1)
    journal.close()
    path.write_bytes(path.read_bytes().replace(b"lost", b"lsot"))
    journal = Journal(path, stale_bytes=0)
    lost = journal.damaged_lines
    for number in range(3 * MIN_STALE_LINES):
        journal.set("offset", value=number, twice=False)
    journal.close()
    assert b"lsot" not in path.read_bytes()
    journal = Journal(path)
    assert journal.damaged_lines == lost > 0
    assert journal.get("topic", "kept") == 1
    journal.close()
