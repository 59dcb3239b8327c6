"""Answers as tables for people and as records for programs."""
