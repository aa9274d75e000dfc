"""What to build: a spec, and the plan of steps and parameters that follows from it."""

from normula.spec.plan import Parameter, Plan, Step, plan
from normula.spec.recipe import Recipe
from normula.spec.role import Role
from normula.spec.spec import NormulaWarning, Spec

__all__ = ["NormulaWarning", "Parameter", "Plan", "Recipe", "Role", "Spec", "Step", "plan"]
