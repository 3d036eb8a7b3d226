"""Groups and their offsets."""
