"""When the disk itself has what was written."""

from dataclasses import dataclass

from kclient_quota.broker.storage.disk import Disk
from kclient_quota.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Fsync:
    """When the disk itself must have what was acknowledged, so that a power cut cannot cost it.

    Attributes:
        is_always: before the acknowledgement (Kafka: `log.flush.interval.messages=1`).
        every_ms: at least this often (Kafka: `log.flush.interval.ms`); 0 only when the broker closes, which is Kafka's
            default as well: the operating system writes back in its own time.
    """

    is_always: bool = False
    every_ms: int = 0

    @classmethod
    def of(cls, given: "str | int | Fsync") -> "Fsync":
        """From "close", "always" or a number of milliseconds.

        Raises:
            ConfigError: it is none of these.
        """
        if isinstance(given, Fsync):
            return given
        if given == "close":
            return cls()
        if given == "always":
            return cls(is_always=True)
        if not str(given).isdecimal() or int(given) < 1:
            raise ConfigError(f"fsync={given!r}: use 'close', 'always' or a number of milliseconds from 1 on")
        return cls(every_ms=int(given))


@dataclass(frozen=True, slots=True)
class Everything:
    """All that the system has not written to its disks yet."""

    disk: Disk

    def begin_sync(self) -> None:
        """What is there is there."""

    def sync(self) -> None:
        """Wait for all disks."""
        self.disk.sync_all()

    def end_sync(self, error: OSError | None) -> None:
        """Nobody tells of any."""
