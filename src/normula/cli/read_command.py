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
    parser.add_argument("--html", metavar="FILE", help="write the reading as a page")
    json_option(parser)


def run(options: argparse.Namespace) -> int:
    """Read and print."""
    from normula.framework import room
    from normula.read.twin import read_source

    sources = room("torch").sources
    inputs = dict(sources.parse_input(text) for text in options.input)
    if options.html:
        from normula.report import check_writable

        check_writable(options.html)
    source = sources.source(options.model, inputs or None)
    reading = read_source(source)
    if options.html:
        from normula.report import write
        from normula.report.reading import reading_page

        write(reading_page(reading, source.title, source.note), options.html)
    if options.json:
        print(json.dumps(reading.to_dict(), indent=1))
    else:
        from rich.console import Console

        from normula.report.reading import print_reading

        print_reading(reading, source.title + (f"   ({source.note})" if source.note else ""), Console())
    return 0
