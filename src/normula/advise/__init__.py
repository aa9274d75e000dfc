"""Which placement to take, with the evidence: a table of rules, the ledger, and the user's own race or model."""

from normula.advise.advise import Ledger, advise
from normula.advise.rules import rules
from normula.advise.situation import Situation

__all__ = ["Ledger", "Situation", "advise", "rules"]
