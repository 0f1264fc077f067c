"""Tables on a terminal: one style, and no more columns than fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

__all__ = ["FittingTable", "new_table"]

_BETWEEN = 3
"""Space between columns."""


@dataclass(eq=False)
class FittingTable:
    """Table in the house style that leaves columns out rather than cut what stands in others.

    Attributes
    ----------
    columns : sequence of (str, str)
        Heading, and ``left`` or ``right``.
    title : str
    spare : sequence of str
        Headings of columns that a narrow terminal does not show, the first to go first.
    """

    columns: Sequence[tuple[str, str]]
    title: str = ""
    spare: Sequence[str] = ()
    _rows: list[tuple[str, ...]] = field(default_factory=list)
    _sections: set[int] = field(default_factory=set)

    def add_row(self, *cells: str) -> None:
        """Add cells, in markup; those missing at the end are empty."""
        self._rows.append(cells + ("",) * (len(self.columns) - len(cells)))

    def add_section(self) -> None:
        """Draw a space below the last row."""
        self._sections.add(len(self._rows))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        gone = 0
        while gone < len(self.spare) and self._width(self.spare[:gone]) > options.max_width:
            gone += 1
        yield self._without(self.spare[:gone])

    def _width(self, gone: Sequence[str]) -> int:
        """Least width of the table without some columns, where left ones' headings may wrap.

        Rich's own measure takes ten times as long.
        """
        widths = []
        for k, (heading, side) in enumerate(self.columns):
            if heading not in gone:
                words = [heading] if side == "right" else heading.split()
                cells = [*words, *(row[k] for row in self._rows)]
                widths.append(max(map(cell_len, cells), default=0))
        return sum(widths) + _BETWEEN * (len(widths) - 1) + 2

    def _without(self, gone: Sequence[str]) -> Table:
        """Rich table without some columns."""
        table = Table(
            box=box.SIMPLE_HEAD,
            title=self.title or None,
            title_justify="left",
            pad_edge=False,
            title_style="bold",
        )
        kept = [k for k, (heading, _) in enumerate(self.columns) if heading not in gone]
        for heading, side in (self.columns[k] for k in kept):
            right = side == "right"
            table.add_column(heading, justify="right" if right else "left", no_wrap=right)
        for row, cells in enumerate(self._rows):
            table.add_row(*(cells[k] for k in kept), end_section=row + 1 in self._sections)
        return table


def new_table(
    columns: Sequence[tuple[str, str]], title: str = "", spare: Sequence[str] = ()
) -> FittingTable:
    """Table with the house style, see `FittingTable`."""
    return FittingTable(columns, title, spare)
