"""The producing side: `producer` is the door, `core` decides, `sender` acts."""

from kclient_quota.clients.producer.producer import Producer

__all__ = ["Producer"]
