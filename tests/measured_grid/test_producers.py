"""How much of a producer's quota is used on the embedded broker, and how evenly."""

from tests.measured.test_producers import (
    ON_THREE_BROKERS,
    ROUND,
    SCENES,
    test_the_quota_is_used,
    test_the_quota_of_every_broker_is_used,
    test_the_quota_of_every_broker_is_used_with_keys,
)

__all__ = [
    "ON_THREE_BROKERS",
    "ROUND",
    "SCENES",
    "test_the_quota_is_used",
    "test_the_quota_of_every_broker_is_used",
    "test_the_quota_of_every_broker_is_used_with_keys",
]
