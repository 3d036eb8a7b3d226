"""For tests of services that use Kafka: clocks, brokers, pytest fixtures."""
