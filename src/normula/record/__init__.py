"""Typed results: one schema, JSON both ways."""

from normula.record.base import Environment, environment, from_dict, from_json, to_dict, to_json
from normula.record.flow import Finding, Flow, GrowthLaw, Pass, StepFlow, WeightFlow

__all__ = [
    "Environment",
    "Finding",
    "Flow",
    "GrowthLaw",
    "Pass",
    "StepFlow",
    "WeightFlow",
    "environment",
    "from_dict",
    "from_json",
    "to_dict",
    "to_json",
]
