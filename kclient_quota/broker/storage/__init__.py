"""What a cluster keeps on disk."""
