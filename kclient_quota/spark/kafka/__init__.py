"""Topics as a source and a sink of Spark's, paced by the quota."""
