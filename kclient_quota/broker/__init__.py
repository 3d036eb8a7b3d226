"""An embedded, quota-enforcing Kafka broker."""
