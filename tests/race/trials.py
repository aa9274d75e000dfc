"""Trials made by hand."""

from typing import Any

from normula.record import Trial


def trial(name: str = "pre", loss: float = 2.0, **fields: Any) -> Trial:
    usual: dict[str, Any] = dict(
        identity="",
        init="xavier",
        lr=1e-3,
        warmup=0,
        seed=0,
        curve=(5.0, 3.0),
        stuck_loss=3.0,
        outcome="learned",
        seconds=1.0,
        tokens_per_second=1.0,
    )
    return Trial(**(usual | dict(name=name, loss=loss) | fields))
