"""Who is throttled now: what clients push, per client, beside the quota that holds for them."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unicodedata import east_asian_width, normalize

from kclient_quota.admin.output import entity_text
from kclient_quota.errors import ConfigError
from kclient_quota.quota.entity import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    DEFAULT,
    PRODUCER_BYTE_RATE,
    USER,
    ClientQuotaEntity,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kclient_quota.admin.effective import EffectiveQuotas

_METRIC = re.compile(r"org_apache_kafka_(producer|consumer)_(?:fetch_manager_)?(node_)?(.+?)(_total)?")
_THROTTLE = {"produce_throttle_time", "fetch_throttle_time", "request_throttle_time"}
_STALE_MS: Final = 300_000
MOST_CLIENTS: Final = 10_000
_MOST_NODES: Final = 1_000
SORTS: Final = ("throttle", "wait", "rate", "use", "lag", "fill", "since", "client")


@dataclass(frozen=True, slots=True)
class Sample:
    """One value that a client has pushed.

    Attributes:
        instance: the client instance's id.
        client_id: its client.id.
        user: who it is, without `User:`.
        metric: the name as pushed or as Prometheus shows it.
        tags: of the point.
        value: a gauge's value, or a counter's since its beginning.
        at_ms: when it came, in milliseconds since 1970.
        is_delta: the value is what came since the last one.
    """

    instance: str
    client_id: str
    user: str
    metric: str
    tags: Mapping[str, str]
    value: float
    at_ms: int
    is_delta: bool = False


@dataclass(slots=True)
class Row:
    """One client.

    Attributes:
        client: its client.id.
        user: its user.
        kind: producer or consumer.
        instance: the client instance's id.
        throttle_avg_ms: mean throttle time of all responses of the last minute.
        throttle_max_ms: the longest of them.
        wait_ratio: part of the time for which calls waited for the quota.
        rate: bytes per second, on the broker that gets most.
        limit: what the quota allows on each broker; None where it is not known or nothing limits.
        quota: the entry that decides, such as {user=alice}.
        level: at which level it stands, "user", "client", or "u+c" of both; `*` is a default.
        lag: records behind, of consumers.
        batch_fill: how full batches leave, 0 to 1; None where the client does not say.
        throttled_since_ms: since when it has been throttled or waiting without a break; None when it is not.
        seen_ms: when it last pushed.
    """

    client: str
    user: str
    kind: str
    instance: str = ""
    throttle_avg_ms: float = 0.0
    throttle_max_ms: float = 0.0
    wait_ratio: float = 0.0
    rate: float = 0.0
    limit: float | None = None
    quota: str = ""
    level: str = ""
    batch_fill: float | None = None
    lag: float | None = None
    throttled_since_ms: int | None = None
    seen_ms: int = 0

    @property
    def use(self) -> float | None:
        """Rate by limit."""
        return self.rate / self.limit if self.limit else None

    @property
    def is_throttled(self) -> bool:
        """Whether the quota holds it up now."""
        return self.throttle_avg_ms > 0 or self.wait_ratio > 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "use": self.use}


@dataclass(slots=True)
class _Client:
    row: Row
    rates: dict[str, tuple[float, int]] = field(default_factory=dict)
    waited: tuple[float, int] | None = None


class Top:
    """Keeps the last word of every client; silent ones go.

    Args:
        most_clients: how many are kept.

    Attributes:
        left_out: how often a client was not taken, or forgotten, because there were so many.
    """

    def __init__(self, most_clients: int = MOST_CLIENTS) -> None:
        self._most_clients = most_clients
        self._clients: dict[tuple[str, str], _Client] = {}
        self._of_users: Counter[str] = Counter()
        self.left_out = 0

    def take(self, sample: Sample) -> None:
        """Take over one value; those that say nothing of quotas are passed over."""
        found = _METRIC.fullmatch(re.sub(r"[^a-zA-Z0-9_]", "_", sample.metric))
        if found is None or not math.isfinite(sample.value):
            return
        kind, node, name, total = found.groups()
        client = self._clients.get((sample.instance, kind)) or self._new_client(sample, kind)
        if client is None:
            return
        row = client.row
        row.seen_ms = max(row.seen_ms, sample.at_ms)
        if total:
            if name == "quota_wait_time":
                self._wait(client, sample)
        elif name == ("outgoing_byte_rate" if kind == "producer" else "incoming_byte_rate"):
            self._rate(client, sample.tags.get("node_id", "") if node else "", sample)
        elif name == "records_lag_max":
            row.lag = sample.value
        elif name == "quota_batch_fill_avg" and not node:
            row.batch_fill = sample.value
        elif not node and name.rpartition("_")[0] in _THROTTLE and name.endswith(("_avg", "_max")):
            attribute = f"throttle_{name[-3:]}_ms"
            is_newer = name.startswith("request") and sample.value < getattr(row, attribute)
            if not is_newer:  # both names report the longer of two throttle times
                setattr(row, attribute, sample.value)
        self._note_throttle(row, sample.at_ms)

    def _new_client(self, sample: Sample, kind: str) -> _Client | None:
        """Room is short where somebody makes up clients: it is taken from the user who has most of them."""
        if len(self._clients) >= self._most_clients:
            self.left_out += 1
            user, _ = max(self._of_users.items(), key=lambda item: item[1])
            if user == sample.user:
                return None
            self._forget(next(key for key, client in self._clients.items() if client.row.user == user))
        client = _Client(Row(sample.client_id, sample.user, kind, sample.instance))
        self._clients[sample.instance, kind] = client
        self._of_users[sample.user] += 1
        return client

    def _forget(self, key: tuple[str, str]) -> None:
        user = self._clients.pop(key).row.user
        self._of_users[user] -= 1
        if not self._of_users[user]:
            del self._of_users[user]

    @staticmethod
    def _rate(client: _Client, where: str, sample: Sample) -> None:
        """Of the broker that gets most; who makes up brokers takes no room for that."""
        if where in client.rates or len(client.rates) < _MOST_NODES:
            client.rates[where] = sample.value, sample.at_ms
        of_nodes = [rate for node, (rate, at) in client.rates.items() if node and sample.at_ms - at < _STALE_MS]
        client.row.rate = max(of_nodes, default=client.rates.get("", (0.0, 0))[0])

    def _wait(self, client: _Client, sample: Sample) -> None:
        """Waiting time by the time in which it came about; more than one call may wait at a time."""
        former, former_ms = client.waited or (0.0, sample.at_ms)
        value = former + sample.value if sample.is_delta else sample.value
        if sample.at_ms > former_ms:
            client.row.wait_ratio = max(0.0, value - former) / (sample.at_ms - former_ms)
        client.waited = value, sample.at_ms

    @staticmethod
    def _note_throttle(row: Row, at_ms: int) -> None:
        if not row.is_throttled:
            row.throttled_since_ms = None
        elif row.throttled_since_ms is None:
            row.throttled_since_ms = at_ms

    def rows(
        self, now_ms: int, *, sort: str = "throttle", wanted: str = "", quotas: EffectiveQuotas | None = None
    ) -> list[Row]:
        """Clients, those first that have most of what is sorted by.

        Args:
            now_ms: clients that have been silent for five minutes are forgotten.
            sort: one of SORTS.
            wanted: only clients whose client.id or user has this in it.
            quotas: of the cluster, for limits.

        Raises:
            ConfigError: there is no such order.
        """
        if sort not in SORTS:
            raise ConfigError(f"sort by one of {', '.join(SORTS)}, not {sort!r}")
        for key, client in list(self._clients.items()):
            client.row.seen_ms = min(client.row.seen_ms, now_ms)  # the clock may have been put back
            if now_ms - client.row.seen_ms > _STALE_MS:
                self._forget(key)
        rows = [client.row for client in self._clients.values()]
        rows = [row for row in rows if wanted in row.client or wanted in row.user]
        for row in rows:
            _limit(row, quotas)
        return sorted(rows, key=lambda row: (_order(row, sort), row.client, row.user))


def _order(row: Row, sort: str) -> tuple[float, float]:
    values = {
        "throttle": (row.throttle_avg_ms, row.wait_ratio),
        "wait": (row.wait_ratio, row.throttle_avg_ms),
        "rate": (row.rate, 0.0),
        "use": (row.use or 0.0, 0.0),
        "lag": (row.lag or 0.0, 0.0),
        "fill": (-1.0 if row.batch_fill is None else row.batch_fill, 0.0),
        "since": (-math.inf if row.throttled_since_ms is None else -row.throttled_since_ms, 0.0),
        "client": (0.0, 0.0),
    }
    first, second = values[sort]
    return -first, -second


def _limit(row: Row, quotas: EffectiveQuotas | None) -> None:
    if quotas is None:
        return
    key = PRODUCER_BYTE_RATE if row.kind == "producer" else CONSUMER_BYTE_RATE
    found = quotas.deciding(ClientQuotaEntity.of(user=row.user or "ANONYMOUS", client_id=row.client), key)
    row.limit, row.quota, row.level = None, "", ""
    if found is not None:
        row.limit, row.quota, row.level = found.value, entity_text(found.entity), _level(found.entity)


def _level(entity: ClientQuotaEntity) -> str:
    short = {USER: "u", CLIENT_ID: "c"} if len(entity.entries) > 1 else {USER: "user", CLIENT_ID: "client"}
    names = (short.get(kind, kind) + ("*" if name is DEFAULT else "") for kind, name in entity.entries.items())
    return "+".join(sorted(names, reverse=True))


class Column(NamedTuple):
    """Of the table.

    Attributes:
        head: its name.
        width: most characters.
        sort: what it is sorted by.
    """

    head: str
    width: int
    sort: str


COLUMNS: Final = (
    Column("CLIENT", 12, "client"),
    Column("USER", 7, "client"),
    Column("", 1, "client"),
    Column("LEVEL", 8, "client"),
    Column("THROT", 5, "throttle"),
    Column("WAIT", 4, "wait"),
    Column("RATE", 5, "rate"),
    Column("LIMIT", 5, "rate"),
    Column("USE", 4, "use"),
    Column("LAG", 5, "lag"),
    Column("FILL", 4, "fill"),
    Column("SINCE", 5, "since"),
)
"""Of 80 columns at most, with a space between them."""


def cells(rows: Iterable[Row], now_ms: int) -> list[tuple[str, ...]]:
    """Rows as people read them, each cell of its column's width at most."""
    return [
        (
            short(row.client, 12),
            short(row.user, 7),
            row.kind[0],
            short(row.level or "-", 8),
            _duration(row.throttle_avg_ms),
            f"{min(row.wait_ratio, 9.99):.0%}",
            _bytes(row.rate),
            "-" if row.limit is None else _bytes(row.limit),
            "-" if row.use is None else f"{min(row.use, 9.99):.0%}",
            "-" if row.lag is None else _bytes(row.lag).rstrip("B"),
            "-" if row.batch_fill is None else f"{min(row.batch_fill, 9.99):.0%}",
            "-" if row.throttled_since_ms is None else _ago(now_ms - row.throttled_since_ms),
        )
        for row in rows
    ]


def table(rows: Sequence[Row], now_ms: int) -> str:
    """Rows below a head, in 80 columns."""
    lines = [tuple(column.head for column in COLUMNS), *cells(rows, now_ms)]
    return "\n".join(
        " ".join(
            cell + " " * (column.width - _columns(cell)) for cell, column in zip(line, COLUMNS, strict=True)
        ).rstrip()
        for line in lines
    )


def summary(rows: Sequence[Row], left_out: int) -> str:
    """How many there are, and whether some are missing."""
    held = sum(row.is_throttled for row in rows)
    missing = "" if not left_out else "; clients are left out, there are too many"
    return f"{len(rows)} clients, {held} held up by a quota{missing}"


def details(row: Row, now_ms: int) -> str:
    """All of one client, in three lines."""
    limited = f"{row.quota} allows {_bytes(row.limit)}/s per broker" if row.limit is not None else "no limit is known"
    held = "" if row.throttled_since_ms is None else f", held up for {_ago(now_ms - row.throttled_since_ms)}"
    longest = f"longest throttle {_duration(row.throttle_max_ms)}{held}"
    lines = (
        f"{row.kind} {row.client}" + (f" of {row.user}" if row.user else ""),
        limited,
        f"{longest}; {row.instance}",
    )
    return "\n".join(short(line, _DETAIL_WIDTH) for line in lines)


_DETAIL_WIDTH = 78


def short(text: str, width: int) -> str:
    """A text in so many columns of a terminal, which obeys nothing of what is in it."""
    clean = "".join(character if character.isprintable() else "?" for character in normalize("NFC", text))
    if _columns(clean) <= width:
        return clean
    ends = accumulate(map(_columns, clean))
    return "".join(character for character, end in zip(clean, ends, strict=True) if end < width) + "…"


def _columns(text: str) -> int:
    """How many a terminal takes for it: two for a character of Chinese or Japanese, and for an emoji."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def _bytes(value: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:  # noqa: PLR2004 - the next unit
            return f"{value:.0f}{unit}" if unit == "B" or value >= 10 else f"{value:.1f}{unit}"  # noqa: PLR2004
        value /= 1000
    return f"{value:.0f}TB"


def _duration(ms: float) -> str:
    return f"{ms:.0f}ms" if ms < 1_000 else _ago(round(ms))  # noqa: PLR2004 - a second


def _ago(ms: int) -> str:
    seconds = max(0, ms) // 1000
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds}s"
    return f"{seconds // 60}m" if seconds < 3_600 else f"{seconds // 3_600}h"  # noqa: PLR2004 - an hour
