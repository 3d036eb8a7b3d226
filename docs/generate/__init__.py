"""What the reference is made of: `python -m docs.generate` writes docs/reference/, a test compares it with the code."""
