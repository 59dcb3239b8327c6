"""A throw-away host in a virtual machine: for stacks that this kernel lacks or nobody risks."""
