"""What is done to a running guest's disk: a file and a row of `registry.py` for each operation."""
