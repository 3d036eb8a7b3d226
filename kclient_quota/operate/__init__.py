"""For those who run clusters: what is wrong, who is throttled now, and a receiver of telemetry of its own."""
