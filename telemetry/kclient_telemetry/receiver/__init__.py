"""The broker's end: subscriptions, manager, exporters."""
