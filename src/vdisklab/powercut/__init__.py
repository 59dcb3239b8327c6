"""Simulates power cuts of a logged host disk, runs the recovery, and checks acknowledged writes."""
