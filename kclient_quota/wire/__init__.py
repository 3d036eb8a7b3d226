"""The Kafka protocol: our own codec, and connections that speak it."""
