"""Quota-aware Kafka clients for Python."""
