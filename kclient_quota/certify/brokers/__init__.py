"""Does a broker throttle as Kafka's KIPs say? Rows that any broker which speaks Kafka's protocol can be put to."""
