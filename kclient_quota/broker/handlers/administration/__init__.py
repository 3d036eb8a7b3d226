"""Topics, configurations and quotas, as administrators ask for them."""
