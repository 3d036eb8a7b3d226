"""What only librdkafka needs: its statistics, its configuration keys and its partitioners, in Python."""
