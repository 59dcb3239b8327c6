"""Records every write that reaches the host's disk while a client writes."""
