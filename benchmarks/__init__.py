"""Measurements of clients under quota on real Apache Kafka: `python -m benchmarks --help`."""
