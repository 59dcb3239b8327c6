"""Actions change something: they measure, import, correct, delete."""
