"""Questions to the table of points, each a function from DataFrame to DataFrame."""
