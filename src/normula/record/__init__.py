"""Typed results: one schema, JSON both ways."""

from normula.record.advice import Advice, Choice, Evidence, Practice
from normula.record.answer import Cell, Difference, Facet, Interval, Race, Standing
from normula.record.base import Environment, environment, from_dict, from_json, to_dict, to_json
from normula.record.claim import ClaimResult, ClaimVerdict, Figure, Series
from normula.record.compare import Comparison, DepthPoint, PopularPoint
from normula.record.flow import Decay, Finding, Flow, GrowthLaw, NormFlow, Pass, Start, StepFlow, WeightFlow
from normula.record.race import Evaluation, Outcome, Snapshot, Training, Trial
from normula.record.verdict import Contestant, Share, Statement

__all__ = [
    "Advice",
    "Cell",
    "Choice",
    "ClaimResult",
    "ClaimVerdict",
    "Comparison",
    "Contestant",
    "Decay",
    "DepthPoint",
    "Difference",
    "Environment",
    "Evaluation",
    "Evidence",
    "Facet",
    "Figure",
    "Finding",
    "Flow",
    "GrowthLaw",
    "Interval",
    "NormFlow",
    "Outcome",
    "Pass",
    "PopularPoint",
    "Practice",
    "Race",
    "Series",
    "Share",
    "Snapshot",
    "Standing",
    "Start",
    "Statement",
    "StepFlow",
    "Training",
    "Trial",
    "WeightFlow",
    "environment",
    "from_dict",
    "from_json",
    "to_dict",
    "to_json",
]
