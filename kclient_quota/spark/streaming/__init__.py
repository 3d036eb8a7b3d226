"""Jobs as streams: checkpoints, what is written where, what each batch says."""
