"""Who a client is: SASL mechanisms and bearer tokens."""
