"""From throttled clients to quotas that serve them, on the embedded broker."""

from tests.measured.test_closed_loop import (
    route,
    test_fifty_clients_get_the_quotas_that_they_need,
)

__all__ = ["route", "test_fifty_clients_get_the_quotas_that_they_need"]
