"""Which names Kafka accepts for a topic (`org.apache.kafka.common.internals.Topic`), and how large it may be here."""

import re

MAX_NAME_LENGTH = 249
MAX_PARTITIONS = 100_000
"""Of one topic: more would take the memory of the machine before anybody could stop it."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def topic_name_problem(name: str) -> str | None:
    """Why `name` cannot be a topic's, in Kafka's words, or None."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in {".", ".."}:
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if _LEGAL.fullmatch(name) is None:
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    return None


def is_valid_topic_name(name: str) -> bool:
    """Whether a topic may be called this."""
    return topic_name_problem(name) is None
