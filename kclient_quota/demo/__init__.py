"""The same work, plain and wrapped, side by side."""
