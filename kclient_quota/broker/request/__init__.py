"""One request on its way: who may answer it, what it costs, what a test does to it."""
