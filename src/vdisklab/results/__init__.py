"""Measured runs as values, and the database that stores them."""
