"""Quota administration: KIP-546 in Python."""
