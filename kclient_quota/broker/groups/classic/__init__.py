"""Groups that rebalance by JoinGroup and SyncGroup; the members say what is assigned."""
