"""Reasons to distrust a number, found in the values and in the evidence beside them."""
