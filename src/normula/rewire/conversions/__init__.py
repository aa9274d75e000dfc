"""Conversions that keep a model's function, each with a condition that is checked against what was read."""

from normula.rewire.conversions.convert import CONVERSIONS, conversion, convert, plan

__all__ = ["CONVERSIONS", "conversion", "convert", "plan"]
