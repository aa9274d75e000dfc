"""The literature, claim by claim, each with a measurement and a verdict."""

from normula.claims.claim import Claim, Measured, TrainedClaim
from normula.claims.ledger import claim, claims, measure, names

__all__ = ["Claim", "Measured", "TrainedClaim", "claim", "claims", "measure", "names"]
