"""What every way of exporting OTLP has in common: the outcome, the account of a successful answer, TLS files."""

import base64
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol
from urllib.parse import SplitResult, unquote

from google.protobuf.message import DecodeError  # type: ignore[import-untyped] # protobuf ships no types
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

DEFAULT_TIMEOUT_MS = 10_000

FilesVersion = tuple[tuple[int, int, int], ...]


class Status(Enum):
    """What became of an export."""

    ACCEPTED = "accepted"
    RETRY = "worth repeating"
    CLOSED = "not delivered before closing"
    REFUSED = "refused"
    UNREADABLE = "unreadable"
    """Refused for what is in it: a part of it may be taken."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The collector's answer.

    Attributes:
        detail: for people.
        retry_after_ms: how long the collector asks to be left alone; None when it does not say.
        rejected_points: points of an accepted export that the collector did not want.
    """

    status: Status
    detail: str = ""
    retry_after_ms: int | None = None
    rejected_points: int = 0


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files: whom to trust (None: the system's authorities) and, for mTLS, who we are."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None

    def version(self) -> FilesVersion:
        """Which files they are now: another answer when one has been written anew, or has another in its place.

        Raises:
            OSError: one is not there, or may not be read.
        """
        found = [Path(name).stat() for name in (self.ca_file, self.certificate_file, self.key_file) if name]
        return tuple((file.st_ino, file.st_mtime_ns, file.st_size) for file in found)


class Sender(Protocol):
    """Sends one ExportMetricsServiceRequest at a time."""

    def send(self, body: bytes) -> Outcome:
        """Export `body`; never raises for what the network or the collector does."""
        ...

    def close(self) -> None:
        """Give up the connection."""
        ...


def authorization_of(url: SplitResult) -> dict[str, str]:
    """The header that a URL with `user:password@` asks for."""
    if url.username is None:
        return {}
    pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


_MOST_SAID = 1_000
"""Characters of what a collector, or whoever is there in its place, says: they go into a line of the log."""


def in_one_line(said: str) -> str:
    """What a stranger has said, for a log and a terminal: no lines of its own, and nothing that a terminal obeys."""
    printable = "".join(character if character.isprintable() else " " for character in said[:_MOST_SAID])
    return " ".join(printable.split())


def accepted(answer: bytes) -> Outcome:
    """A successful answer; some collectors send none, and one that cannot be read has accepted all the same."""
    try:
        partial = ExportMetricsServiceResponse.FromString(answer).partial_success
    except DecodeError:
        return Outcome(Status.ACCEPTED)
    rejected = max(0, partial.rejected_data_points)  # it has a sign on the wire, and takes back nothing that was lost
    return Outcome(Status.ACCEPTED, partial.error_message[:_MOST_SAID], rejected_points=rejected)
