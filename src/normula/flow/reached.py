"""Parameters that no gradient comes to: never, or only where a layer is not skipped at random."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from normula.record.flow import Finding


def reached_findings(counts: Mapping[str, int], draws: int) -> Iterator[Finding]:
    """What passes in training mode show.

    Args:
        counts: for each parameter, in how many of them a gradient came to it.
        draws: how many there were.
    """
    never = [name for name, count in counts.items() if count == 0]
    sometimes = [name for name, count in counts.items() if 0 < count < draws]
    if never:
        yield Finding(
            kind="gradient-never",
            weight="warning",
            text=f"{len(never)} of {len(counts)} parameters get no gradient in any of {draws} passes in training mode, "
            f"such as {never[0]}: nothing that is differentiated depends on them. Remove them, or use their value.",
        )
    if sometimes:
        least = min(sometimes, key=lambda name: counts[name])
        yield Finding(
            kind="gradient-sometimes",
            weight="note",
            text=f"{len(sometimes)} of {len(counts)} parameters get no gradient in some of {draws} passes in training "
            f"mode, such as {least} in {draws - counts[least]} of {draws}: a stochastic skip, as LayerDrop is. That is "
            "as it should be; DistributedDataParallel needs find_unused_parameters=True for it.",
        )
