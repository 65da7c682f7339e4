"""The type of a length, a place or a value on a page: what is written as ``24`` is as good as ``24.0``."""

from __future__ import annotations

from typing import TypeAlias

__all__ = ["Number"]

Number: TypeAlias = int | float
"""Spelt out because a run-time type checker takes ``float`` at its word."""
