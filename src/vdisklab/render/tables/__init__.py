"""Answers as tables for people and as rows for programs."""
