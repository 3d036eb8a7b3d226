"""Groups of consumers and their committed offsets."""
