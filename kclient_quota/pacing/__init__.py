"""What a client makes of a quota: when how many bytes may go, and which. Pure: no clock, thread or socket."""
