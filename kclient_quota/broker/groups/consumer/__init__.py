"""Groups of KIP-848: the broker assigns, heartbeats tell."""
