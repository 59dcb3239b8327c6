"""The measuring programs: how each is told what to do, and what its answer means."""
