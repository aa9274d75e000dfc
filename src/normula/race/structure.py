"""Whether the end of a stack goes with its layers: told by what is computed, not by names.

Xiong et al., On Layer Normalization in the Transformer Architecture, 2020, table 1: a stack whose layers end in a norm
has its output normalised; one whose stream is never normalised is closed by one norm of its own.
"""

from __future__ import annotations

from normula.formula import Placement, ends_in_norm


def nonstandard(placement: Placement) -> str:
    """Why the end does not go with the layers; empty where it does."""
    layers_end, closed = ends_in_norm(placement.formula), ends_in_norm(placement.final)
    if layers_end and closed:
        return "its layers end in a norm, and a closing norm follows: a leftover of the other order"
    has_norms = any(formula.norms for formula in placement.formulas)
    if has_norms and not layers_end and not placement.final.norms:
        return "its layers do not end in a norm, and no closing norm follows: only the other order goes without one"
    return ""
