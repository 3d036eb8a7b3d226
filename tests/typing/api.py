"""Read by mypy, never run: every public door keeps its type."""

from kclient_quota.errors import QuotaThrottledError


def retry_after_ms(error: QuotaThrottledError) -> int:
    return error.retry_after_ms
