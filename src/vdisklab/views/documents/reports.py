"""The documents of recommendations, reports and tables."""

from __future__ import annotations
