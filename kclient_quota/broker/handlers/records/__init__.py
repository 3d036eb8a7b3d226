"""Records in and out, and transactions over them."""
