"""Turns answers into text, tables, charts and documents."""
