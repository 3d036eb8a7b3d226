"""Drop-in producers and consumers over confluent_kafka."""
