"""Disk paths: their syntax, what they mean, which are impossible, what they guarantee. No I/O."""
