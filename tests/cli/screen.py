"""What people see, whole, at 80 columns or fewer."""

import io

from rich.console import Console, RenderableType


def shown(rendered: RenderableType, width: int = 80) -> list[str]:
    """As on a plain terminal of so many columns, without the blanks at the ends of lines."""
    file = io.StringIO()
    console = Console(file=file, width=width, color_system=None, markup=False, emoji=False, highlight=False)
    console.print(rendered, crop=False)
    return [line.rstrip() for line in file.getvalue().splitlines()]
