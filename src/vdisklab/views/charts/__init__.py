"""Charts: their specifications, their drawing, and the figures of a report."""
