"""What a producer does in its application's own calls: take a message, wait, commit."""
