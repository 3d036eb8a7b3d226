"""When a consumer takes its messages: shares of the quota among its brokers, sizes of fetches, lumps."""
