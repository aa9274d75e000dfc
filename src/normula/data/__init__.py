"""Real tokens that every machine has: text as bytes, and small tasks made from a seed."""

from normula.data.draws import random_direction, random_input
from normula.data.task import Batch, Copy, Task, Text, task
from normula.data.text import Corpus, corpus

__all__ = ["Batch", "Copy", "Corpus", "Task", "Text", "corpus", "random_direction", "random_input", "task"]
