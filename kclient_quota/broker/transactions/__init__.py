"""Who is in a transaction, and how it ends."""
