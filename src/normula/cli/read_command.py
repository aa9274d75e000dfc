"""What a model does to its residual stream, as a formula: read from what runs, not from names or flags.

MODEL is hf:NAME (a model type of transformers, a config.json, a folder with one, a name on the hub), timm:NAME,
package.module:factory, or FILE.pt2. Weights are never downloaded and pickles are never loaded.
"""

from __future__ import annotations

import argparse
import json

from normula.cli.options import json_option


def arguments(parser: argparse.ArgumentParser) -> None:
    """The model and its example inputs."""
    parser.add_argument("model", metavar="MODEL", help="such as hf:gpt2, timm:vit_base_patch16_224, mine.models:make")
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=SHAPE", help="an example input, such as input_ids=2x8"
    )
    parser.add_argument("--html", metavar="FILE", help="write a page: the reading, and signal and gradient by depth")
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Read and print; a page holds what was measured as well."""
    from normula.cli.models import page_of, reading_of, source_of

    if options.html:
        from normula.report import check_writable

        check_writable(options.html)
    source = source_of(options.model, options.input)
    reading = reading_of(source)
    if options.html:
        from normula.report import write

        write(page_of(source, reading, "read", options.input), options.html)
    if options.json:
        print(json.dumps(reading.to_dict(), indent=1))
    else:
        from rich.console import Console

        from normula.report.reading import print_reading

        print_reading(reading, source.title + (f"   ({source.note})" if source.note else ""), Console())
    return 0
