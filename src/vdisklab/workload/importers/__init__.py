"""Parses result files of other programs.

Units are never guessed, and missing values are not zero.
"""
