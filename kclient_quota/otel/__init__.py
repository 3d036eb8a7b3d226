"""The metrics and spans of this process's clients on its own OpenTelemetry providers."""
