"""A partition's records in memory."""
