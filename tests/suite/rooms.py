"""The directories of tests: what shares a worker, in which order, how long each may take.

`make check` runs `WAITLESS`, `make test` everything in `TESTED`; what is in `ON_REQUEST` has targets of its own.
"""

WAITLESS = ("unit", "property")
TESTED = (*WAITLESS, "contract", "integration", "spark", "examples", "package", "measured")
MEASURED, MEASURED_GRID, SPARK, SPARK_GRID, KAFKA = "measured", "measured_grid", "spark", "spark_grid", "kafka"
ON_REQUEST = {
    **{name: name for name in ("certify", "faults", "fuzz", "grids", "peers", "soak", "versions")},
    MEASURED_GRID: "grids",
    SPARK_GRID: "grids",
}
"""Directories and their make targets; where there is none there are no such tests yet."""

WORKERS = {MEASURED: 1, SPARK: 2, KAFKA: 2}
"""Rooms that keep something costly for a worker's session, and how many workers may have it."""

CPU_BUDGET_S = {
    "unit": 500,
    "property": 100,
    "contract": 300,
    "integration": 840,
    "spark": 400,
    "examples": 240,
    "package": 120,
    "measured": 300,
}
"""Seconds of CPU by directory: what its tests use in their worker and in processes that they start and await, about
twice what they use on a quiet machine, and more on one that is slower by `tests/suite/speed.py`. By the wall clock the
same tests take twice or ten times as long when something else runs beside them, and workers share cores; CPU time
stays. It catches a directory that has grown by a minute of work, not a test that is slow today. What waits is bounded
by the time-out of each test and by the budget of all."""

BUDGET_OF_ALL_S = 30 * 60
"""Seconds by the wall clock for the whole run on two cores: half as much again as it takes, since figures that a busy
machine disturbed are taken again."""

_TURNS = ("spark", "contract", "examples", "integration", "package", "property", "unit", "measured")
_LONG = (
    "integration/test_otlp_collector.py",
    "integration/test_receive_losses.py",
    "integration/test_benchmark_clients.py",
)
"""Files that take minutes: whoever begins them last is waited for."""
_WAIT_FOR_LONG = (
    "examples/test_pages.py",
    "integration/test_agents_by_kind.py",
    "integration/test_aio_argument_shapes.py",
    "integration/test_argument_shapes.py",
    "integration/test_consumer_faults.py",
    "integration/test_consumer_late_quota.py",
    "integration/test_offsets_beside_silent_leaders.py",
    "integration/test_offsets_without_coordinator.py",
    "integration/test_producer_doors.py",
    "integration/test_producer_lanes.py",
    "integration/test_producer_network_faults.py",
    "integration/test_producer_transactions.py",
    "integration/test_raising_callbacks.py",
    "integration/test_simulated_time_outs.py",
    "integration/test_slow_answer.py",
    "integration/test_suite_runs.py",
    "integration/test_transaction_ended_meanwhile.py",
)
"""Files that mostly wait, for more than a minute or, where the alphabet has them late, for half of one: they begin
before others, but not all at once."""
_BUSY = (
    "unit/broker/test_long_shares.py",
    "unit/broker/test_telling.py",
    "unit/pacing/test_fetch.py",
    "unit/pacing/test_known_share.py",
    "unit/simulation/test_sending.py",
    "unit/simulation/test_fleet_formulas.py",
    "unit/simulation/test_simulation_consumers.py",
)
"""Files that compute for more than five seconds, and share a core with others: begun last they end alone."""
_WORKERS_PER_COMPUTING_ONE = 7
"""Of so many workers one begins with what computes: while all others begin with what waits, a third of the cores'
time was unused."""


def directory_of(nodeid: str) -> str:
    """The directory below `tests` that a test or a unit of work is in."""
    parts = nodeid.replace("\\", "/").split("/")
    return parts[1] if len(parts) > 2 else ""


def unit_of(nodeid: str) -> str:
    """What a test shares a worker with: its file, and in a file for both brokers those on the same broker."""
    file, _, name = nodeid.partition("::")
    if directory_of(file) == MEASURED:
        return f"tests/{MEASURED}/"
    return f"{file}@{KAFKA}" if "apache-kafka" in name else file


def room_of(unit: str) -> str | None:
    """What a unit of work keeps for the session of its worker, if that is costly."""
    directory = directory_of(unit)
    if directory == MEASURED:
        return MEASURED
    if directory in {SPARK, SPARK_GRID}:
        return SPARK
    return KAFKA if unit.endswith(f"@{KAFKA}") else None


def computes(worker: int, workers: int) -> bool:
    """Whether a worker, by its place among `workers`, begins with what computes; the last ones do."""
    return worker >= workers - workers // _WORKERS_PER_COMPUTING_ONE


def turn_of(unit: str, computing: bool = False) -> tuple[int, int, bool, str]:
    """A key to sort units by: what takes long comes first, and for a computing worker what does not wait."""
    file = unit.partition("@")[0]
    directory = directory_of(unit)
    turn = _TURNS.index(directory) if directory in _TURNS else len(_TURNS)
    if any(file.endswith(busy) for busy in _BUSY):
        turn = _TURNS.index("package")
    is_long = any(file.endswith(long) for long in _WAIT_FOR_LONG)
    if is_long:
        turn = _TURNS.index("integration")
    is_early = directory in WAITLESS if computing else any(file.endswith(long) for long in _LONG)
    return (0 if is_early and directory != MEASURED else 1, turn, not is_long, unit)
