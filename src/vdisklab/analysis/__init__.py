"""Computes answers from measured runs: values in, values out; no files, no text."""
