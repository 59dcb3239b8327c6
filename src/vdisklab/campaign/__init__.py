"""Measures cells one by one in random order, with storage, guest and workload."""
