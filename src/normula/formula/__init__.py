"""The notation: text to formula, and what a formula says of itself."""

from normula.formula.errors import FormulaError
from normula.formula.formula import Formula
from normula.formula.placement import InitialWeights, Placement, Range, ends_in_norm, surrounded

__all__ = ["Formula", "FormulaError", "InitialWeights", "Placement", "Range", "ends_in_norm", "surrounded"]
