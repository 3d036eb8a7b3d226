"""What a producer does in its one thread: hand over what waits, hear what became of it."""
