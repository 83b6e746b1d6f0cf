"""A column of progress bars."""

from __future__ import annotations

from rich.progress import ProgressColumn, Task
from rich.text import Text

from agentzoo.errors import printable


class Words(ProgressColumn):
    """A column of a progress bar that shows a text of its task; markup and terminal codes have no effect.

    Args:
        field: of the task; None is its description.
        before: words in front of the text.
    """

    def __init__(self, field: str | None = None, before: str = "") -> None:
        self.field, self.before = field, before
        super().__init__()

    def render(self, task: Task) -> Text:
        """The task's current text."""
        text = task.description if self.field is None else task.fields[self.field]
        return Text(self.before + printable(text))
