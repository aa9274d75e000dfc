"""The literature, claim by claim, each with a measurement and a verdict."""

from normula.claims.claim import Claim, Measured
from normula.claims.ledger import claim, claims, measure, names

__all__ = ["Claim", "Measured", "claim", "claims", "measure", "names"]
