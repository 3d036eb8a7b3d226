"""The Kafka protocol: our own codec, and connections that speak it.

`messages` holds the tables (`ProduceRequest`, ..., `API`), `codec` turns messages into bytes and back, `frame` adds
headers and lengths, `records` reads and writes record batches. `session` is the client's side of a connection as a pure
protocol; `connection` gives it a socket, blocking or asyncio.
"""
