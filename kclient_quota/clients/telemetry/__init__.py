"""KIP-714 of our own clients: the reporter, its connection, its required metrics, and a topic as a destination."""
