"""Share groups (KIP-932): who is in one, what it has of each partition, what of that outlives the broker."""
