"""What we ask a cluster, over connections of our own."""
