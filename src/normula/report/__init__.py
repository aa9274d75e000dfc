"""Records shown: one offline page, a summary for the terminal, and files written whole or not at all."""

from __future__ import annotations

from normula.record import Comparison, Race
from normula.report.files import check_writable, write
from normula.report.terminal import terminal

__all__ = ["check_writable", "html", "terminal", "write"]


def html(found: Comparison | Race, *, command: str | None = None) -> str:
    """A comparison or a race as one page that needs no network and no script.

    The same record gives the same text, to the byte.

    Args:
        found: the record.
        command: what to type to repeat it; None for one worked out from the settings.

    Returns:
        HTML with its styles, drawings and charts inside, in light and in dark.
    """
    # what is imported here loads matplotlib and Jinja, which the other functions do without
    if isinstance(found, Race):
        from normula.report.race_page import race_page

        return race_page(found, command=command)
    from normula.report.page import page

    return page(found, command=command)
