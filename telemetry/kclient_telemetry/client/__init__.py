"""The client's end: reporter and runner."""
