"""A disposable host in a virtual machine, for stacks that this kernel lacks or that are risky."""
