"""The ways of making a disk from a template: one file and one row each."""
