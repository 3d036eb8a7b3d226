"""Kafka's configuration keys of topics, brokers and subscriptions."""
