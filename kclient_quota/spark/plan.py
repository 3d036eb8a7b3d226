"""What a run of the pipeline is to do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kclient_quota.errors import ConfigError
from kclient_quota.spark.durations import duration_ms
from kclient_quota.spark.jobs.recommend import Policy

PYTHON: Final = "python"
CONNECTORS: Final = (PYTHON, "jvm")
JOBS: Final = ("points", "usage", "throttled", "outliers", "recommend", "whatif", "gains")
PARQUET: Final = "parquet"
USAGE: Final = "usage"
_OF_USAGE: Final = ("recommend", "whatif")
_ABOVE_ZERO: Final = ("window", "gap", "push_interval")
_LENGTHS: Final = (*_ABOVE_ZERO, "late", "clock_tolerance", "trigger", "linger")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run.

    Attributes:
        job: one of `JOBS`.
        source: directory that the receiver writes; with `client` a topic of pushes instead, or several with commas.
        source_format: one of `files.FORMATS`; of `recommend` and `whatif` also `usage`, what that job has written;
            plays no part with `client`.
        client: a consumer's configuration, `bootstrap.servers` at least, to read a topic; None: files.
        source_options: of the source of a topic, such as `startingOffsets`; see `kafka.source`.
        output: directory of Parquet files; of `recommend` the file for `kafka-quotas`; with `is_table` a table's name.
        output_format: what Spark writes: parquet, or another that the session has the libraries of.
        is_table: the output is a table of the session's catalog.
        partition_by: columns that become directories; `date` and `hour` are made of the rows' time, in UTC.
        files: so many files a batch (and partition) at most; None: as many as there are tasks.
        dead_letters: directory for what could not be decoded; None passes it over.
        quotas: file of `kafka-quotas export`; None: no limits beside usage. Of `whatif`: what is tried.
        window: of `usage` and what is built on it; None: a minute, or the clients' push interval if that is longer.
        late: of a stream, how late pushes may come.
        gap: of `throttled`: how long a pause ends a session; None: two and a half push intervals of the client.
        push_interval: the longest of the clients; None: as seen when a stream begins.
        clock_tolerance: how far clients' clocks may be off the receiver's; None: however far.
        checkpoint: directory; makes it a stream, exactly once into files.
        is_endless: a stream goes on when it has caught up.
        trigger: of an endless stream, how often a batch begins; None: when the last is done.
        k: of `outliers`.
        capacity: bytes per second that one broker has.
        policy: of `recommend`.
        most_overrides: of `recommend`: more than these are refused.
        linger: of `gains`: how long records are let wait for a batch.
        hold_out: of `recommend`: the part of the time, the last, that is left out and tried on; 0 tries nothing.
        connector: what reads a topic: `python`, the source of this package, paced by the quota; or `jvm`, Spark's own.
        max_rows: of a stream from a topic: the most records in a batch; None: what is there.

    Raises:
        ConfigError: one of them cannot be; says which.
    """

    job: str
    source: str
    output: str
    source_format: str = "jsonl"
    client: Mapping[str, Any] | None = None
    source_options: Mapping[str, str] = field(default_factory=dict)
    output_format: str = PARQUET
    is_table: bool = False
    partition_by: tuple[str, ...] = ()
    files: int | None = None
    dead_letters: str | None = None
    quotas: str | None = None
    window: str | None = None
    late: str = "2 minutes"
    gap: str | None = None
    push_interval: str | None = None
    clock_tolerance: str | None = "2 minutes"
    checkpoint: str | None = None
    is_endless: bool = False
    trigger: str | None = None
    k: int = 3
    capacity: float | None = None
    policy: Policy = field(default_factory=Policy)
    most_overrides: int = 1_000
    linger: str = "100 ms"
    hold_out: float = 0.0
    connector: str = PYTHON
    max_rows: int | None = None

    def __post_init__(self) -> None:
        if self.job not in JOBS:
            raise ConfigError(f"job {self.job}: write one of {', '.join(JOBS)}")
        if self.connector not in CONNECTORS:
            raise ConfigError(f"connector {self.connector}: write one of {', '.join(CONNECTORS)}")
        for name in ("max_rows", "files"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} {value}: write 1 or more")
        if not 0 <= self.hold_out < 1:
            raise ConfigError(f"hold_out {self.hold_out}: write 0 or more, below 1")
        self._check_lengths()
        self._check_kind()

    def _check_lengths(self) -> None:
        for name in _LENGTHS:
            text = getattr(self, name)
            if text is not None and duration_ms(name, text) < 1 and name in _ABOVE_ZERO:
                raise ConfigError(f"{name} {text}: write more than nothing")

    def _check_kind(self) -> None:
        if self.trigger and not self.is_endless:
            raise ConfigError("trigger: how often an endless stream begins a batch; say that it is endless, too")
        if self.job == "whatif" and not self.quotas:
            raise ConfigError("whatif tries quotas: name a file of them, as kafka-quotas export writes and plan reads")
        if self.source_format == USAGE and (self.job not in _OF_USAGE or self.client is not None):
            raise ConfigError(
                f"format {USAGE}: only {' and '.join(_OF_USAGE)} begin with usage that was written before"
            )
        if self.checkpoint and self.job in {"recommend", "whatif", "gains"}:
            raise ConfigError(f"{self.job} looks at a span of time as a whole: run it without a checkpoint")

    @property
    def clock_tolerance_ms(self) -> int | None:
        """In ms."""
        return None if self.clock_tolerance is None else duration_ms("clock_tolerance", self.clock_tolerance)
