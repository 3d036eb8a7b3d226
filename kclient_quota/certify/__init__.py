"""Scenes that any Kafka client can be put to, in any language: does it bear throttling? `driver` has the contract."""
