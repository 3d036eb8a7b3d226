"""One file per API family, each registering itself."""
