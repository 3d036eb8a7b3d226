"""What the report shows, and how it is drawn."""
