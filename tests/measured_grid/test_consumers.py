"""How much of a consumer's quota is used on the embedded broker, and how evenly."""

from tests.measured.test_consumers import (
    ON_THREE_BROKERS,
    ROUND,
    SCENES,
    test_every_broker_gives_what_its_own_quota_allows,
    test_four_consumers_of_one_process_share_its_quota,
    test_the_quota_is_used_evenly,
    test_two_consumers_of_one_client_id_share_its_quota,
)

__all__ = [
    "ON_THREE_BROKERS",
    "ROUND",
    "SCENES",
    "test_every_broker_gives_what_its_own_quota_allows",
    "test_four_consumers_of_one_process_share_its_quota",
    "test_the_quota_is_used_evenly",
    "test_two_consumers_of_one_client_id_share_its_quota",
]
