"""Real tokens that every machine has: text as bytes, images, and small tasks made from a seed."""

from normula.data.batch import Batch
from normula.data.draws import random_direction, random_input
from normula.data.task import TASKS, Task, task
from normula.data.tasks.copying import Copy, Repeat
from normula.data.tasks.digits import Digits
from normula.data.tasks.listops import ListOps
from normula.data.tasks.next_byte import Text
from normula.data.tasks.recall import Recall
from normula.data.tasks.translate import Translate
from normula.data.text import Corpus, corpus

__all__ = [
    "TASKS",
    "Batch",
    "Copy",
    "Corpus",
    "Digits",
    "ListOps",
    "Recall",
    "Repeat",
    "Task",
    "Text",
    "Translate",
    "corpus",
    "random_direction",
    "random_input",
    "task",
]
