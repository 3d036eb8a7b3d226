"""Bytes to and from clients: endpoints, connections, timers of the loop."""
