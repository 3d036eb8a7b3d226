"""One question to a broker: what is right, who says so, how it is found out."""

from collections.abc import Callable
from dataclasses import dataclass

from kclient_quota.certify.brokers.probe import Probe
from kclient_quota.certify.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Row:
    """A question.

    Attributes:
        name: what the row is called; the names of its topics and client-ids begin so.
        expects: what is right, in one sentence.
        source: who says so.
        judge: finds out.
        alone: whether other rows must not be asked meanwhile: it sets quotas of defaults or of the own user.
    """

    name: str
    expects: str
    source: str
    judge: Callable[[Probe], Verdict]
    alone: bool = False
