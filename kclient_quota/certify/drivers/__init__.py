"""Drivers of the clients that are compared, each of about a screen, by the contract of `certify.driver`."""
