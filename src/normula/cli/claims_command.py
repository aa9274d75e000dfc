"""Statements of the literature, each with a measurement here and a verdict; exit code 1 where one changed."""

from __future__ import annotations

import argparse
import json

from normula.claims import claims
from normula.cli.options import framework_option, json_option, whole
from normula.cli.progress import progress


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which claims, and how to print."""
    parser.add_argument(
        "claims", nargs="*", metavar="NAME", help="such as two-feature-example; default: all that need no training"
    )
    parser.add_argument("--slow", action="store_true", help="also those that need training: some minutes on two cores")
    parser.add_argument("--markdown", action="store_true", help="print the ledger's page of the documentation")
    parser.add_argument("--svg", metavar="FILE", help="write the chart of one claim to a file")
    parser.add_argument("--workers", type=whole(1), metavar="N", help="processes; default one a core")
    framework_option(parser)
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    from normula.record import to_dict
    from normula.report.claims_page import claims_page, print_claims

    if options.json and options.markdown:
        raise ValueError("--json and --markdown are two forms of the same ledger; choose one")
    if options.slow and options.claims:
        raise ValueError("a claim that is named is measured, slow or not; leave out --slow, or the names")
    if options.svg and len(options.claims) != 1:
        raise ValueError("--svg draws the chart of one claim; name one")
    if options.svg:
        from normula.report import check_writable

        check_writable(options.svg)
    with progress("measuring") as report:
        found = claims(
            options.claims, slow=options.slow, framework=options.framework, workers=options.workers, report=report
        )
    if options.svg:
        from normula.report import write
        from normula.report.claims_page import claim_svg

        write(claim_svg(found[0]), options.svg)
    if options.json:
        print(json.dumps([to_dict(one) for one in found], indent=1))
    elif options.markdown:
        print(claims_page(found), end="")
    else:
        print_claims(found)
    return 1 if any(one.changed for one in found) else 0
