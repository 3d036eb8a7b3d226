"""KIP-714 client telemetry, both ends, without any Kafka socket."""
