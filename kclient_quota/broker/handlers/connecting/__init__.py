"""What a client asks first: versions, who it is, where topics are, what to push."""
