"""Campaigns on many hosts through Dask distributed, an optional dependency.

A task is one host's `vdisklab run`, as a child process. Dask only sends the task to its host and
reports whether the host is there. Each host writes its numbers into one PostgreSQL. Nothing but
`vdisklab fleet` imports this package.
"""
