"""Here lives Adam: PyTorch's own kernel, called without what `torch.optim.Adam` does around it in each step.

For the hundreds of small parameters of a deep, narrow model that is four fifths of the time of a step. Nor does a
process that only trains load PyTorch's compiler, as every `torch.optim.Optimizer` does when it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class Adam:
    """`torch.optim.Adam`, or `AdamW`, with `fused=True`: the same numbers, bit for bit.

    Args:
        groups: parameters of one device and type each as `params`, with their `weight_decay`.
        lr: learning rate.
        betas: how much of the means of the gradient and of its square is kept.
        eps: what is added to the root.
        decoupled: whether the decay is apart from the gradient, as in AdamW.

    Attributes:
        param_groups: the groups, each with its `lr`.
    """

    def __init__(
        self,
        groups: Sequence[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        decoupled: bool,
    ) -> None:
        self.param_groups: list[dict[str, Any]] = [{"weight_decay": 0.0, **group, "lr": lr} for group in groups]
        self.betas, self.eps = betas, eps
        self.kernel = torch._fused_adamw_ if decoupled else torch._fused_adam_
        self.parameters: list[Tensor] = [one for group in self.param_groups for one in group["params"]]
        self.means = {one: torch.zeros_like(one, requires_grad=False) for one in self.parameters}
        self.squares = {one: torch.zeros_like(one, requires_grad=False) for one in self.parameters}
        self.steps = dict.fromkeys(self.parameters, 0)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        assert set_to_none
        for one in self.parameters:
            one.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """One update of every parameter that has a gradient."""
        for group in self.param_groups:
            moved = [one for one in group["params"] if one.grad is not None]
            for one in moved:
                self.steps[one] += 1
            counts = {
                count: torch.tensor(float(count), device=moved[0].device)
                for count in {self.steps[one] for one in moved}
            }
            if moved:
                self.kernel(
                    moved,
                    [one.grad for one in moved],
                    [self.means[one] for one in moved],
                    [self.squares[one] for one in moved],
                    [],
                    [counts[self.steps[one]] for one in moved],
                    lr=group["lr"],
                    beta1=self.betas[0],
                    beta2=self.betas[1],
                    weight_decay=group["weight_decay"],
                    eps=self.eps,
                    amsgrad=False,
                    maximize=False,
                )

    def state_dict(self) -> dict[str, list[Any]]:
        """All that is needed to go on, in the order of the parameters."""
        return {
            "means": [self.means[one] for one in self.parameters],
            "squares": [self.squares[one] for one in self.parameters],
            "steps": [self.steps[one] for one in self.parameters],
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, list[Any]]) -> None:
        """Go on from what `state_dict` gave for the same parameters."""
        for one, mean, square, steps in zip(
            self.parameters, state["means"], state["squares"], state["steps"], strict=True
        ):
            self.means[one].copy_(mean)
            self.squares[one].copy_(square)
            self.steps[one] = steps
