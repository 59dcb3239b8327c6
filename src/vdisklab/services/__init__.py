"""Use cases: they take values, return values and print nothing."""
