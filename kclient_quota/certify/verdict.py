"""What a scene found: pass, weak or fail, and why. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Grade(StrEnum):
    """How well it went."""

    PASS = "pass"  # noqa: S105 - nobody's password
    WEAK = "weak"
    FAIL = "fail"
    ABSENT = "absent"
    NOT_PLAYED = "not played"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One client in one scene.

    Attributes:
        grade: how well it went.
        why: one sentence with the figure that decided.
    """

    grade: Grade
    why: str


def passed(why: str) -> Verdict:
    """As it should be."""
    return Verdict(Grade.PASS, why)


def weak(why: str) -> Verdict:
    """Nothing is lost, but it could be better; the figure says by how much."""
    return Verdict(Grade.WEAK, why)


def failed(why: str) -> Verdict:
    """Somebody's data, group or time is harmed."""
    return Verdict(Grade.FAIL, why)


def absent(why: str) -> Verdict:
    """The client does not have what is asked about."""
    return Verdict(Grade.ABSENT, why)


def worst(*verdicts: Verdict) -> Verdict:
    """The first of the worst ones."""
    for grade in (Grade.FAIL, Grade.NOT_PLAYED, Grade.ABSENT, Grade.WEAK, Grade.PASS):
        for verdict in verdicts:
            if verdict.grade is grade:
                return verdict
    return verdicts[0]


def agreed(verdicts: Sequence[Verdict]) -> Verdict:
    """What several runs of a scene come to: their verdict where all have the same grade, weak otherwise."""
    if len({verdict.grade for verdict in verdicts}) == 1:
        return verdicts[0]
    counts = Counter(verdict.grade.value for verdict in verdicts)
    grades = ", ".join(f"{count} {grade}" for grade, count in counts.most_common())
    return weak(f"not the same in {len(verdicts)} runs ({grades}); the worst: {worst(*verdicts).why}")
