"""Where models come from: what a user types becomes a model and inputs that it runs with."""

from normula.torch.sources.ask import Ask, parse_input
from normula.torch.sources.errors import SourceError
from normula.torch.sources.meta import Affirming
from normula.torch.sources.source import Source, from_factory, source

__all__ = ["Affirming", "Ask", "Source", "SourceError", "from_factory", "parse_input", "source"]
