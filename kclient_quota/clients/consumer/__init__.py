"""The consuming side: `Consumer`, its pure core, and what stands between the two."""

from kclient_quota.clients.consumer.consumer import Consumer

__all__ = ["Consumer"]
