"""From answers to what a person reads."""
