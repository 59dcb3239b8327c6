"""The measuring programs: their commands, and parsers of their output."""
