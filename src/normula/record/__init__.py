"""Typed results: one schema, JSON both ways."""

from normula.record.base import Environment, environment, from_dict, from_json, to_dict, to_json
from normula.record.claim import ClaimResult, ClaimVerdict, Figure, Series
from normula.record.compare import Comparison, Contestant, DepthPoint, PopularPoint, Share, Statement
from normula.record.flow import Finding, Flow, GrowthLaw, Pass, Start, StepFlow, WeightFlow
from normula.record.race import Outcome, Trial

__all__ = [
    "ClaimResult",
    "ClaimVerdict",
    "Comparison",
    "Contestant",
    "DepthPoint",
    "Environment",
    "Figure",
    "Finding",
    "Flow",
    "GrowthLaw",
    "Outcome",
    "Pass",
    "PopularPoint",
    "Series",
    "Share",
    "Start",
    "Statement",
    "StepFlow",
    "Trial",
    "WeightFlow",
    "environment",
    "from_dict",
    "from_json",
    "to_dict",
    "to_json",
]
