"""What clients push, as rows: OTLP decoded fast where it can be, and one by one where not."""
