"""Kafka's error codes."""

from kclient_quota.wire.error_codes import ErrorCode

__all__ = ["ErrorCode"]
