"""What a consumer says of its quota."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that the user is to be told.

    Attributes:
        cause: what it is about; at most one line a minute and cause is said.
        text: in words.
        is_warning: whether the user should do something about it.
        extra: the same as fields of a log record.
    """

    cause: str
    text: str
    is_warning: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)
