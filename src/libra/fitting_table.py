"""Tables on a terminal: one style, and no more columns beside each other than fit."""

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

    Where that is not enough, a terminal gets the other columns in several tables below each other,
    and what is no terminal, lines as long as they need to be.

    Attributes
    ----------
    columns : sequence of (str, str)
        Heading, and ``left`` or ``right``.
    title : str
    spare : sequence of str
        Headings of columns that a narrow terminal does not show, the first to go first.
    keys : int
        Columns at the left that say what a row is of, and begin each of several tables.
    """

    columns: Sequence[tuple[str, str]]
    title: str = ""
    spare: Sequence[str] = ()
    keys: int = 1
    _rows: list[tuple[str, ...]] = field(default_factory=list)
    _sections: set[int] = field(default_factory=set)

    def add_row(self, *cells: str) -> None:
        """Add cells, in markup; those missing at the end are empty."""
        self._rows.append(cells + ("",) * (len(self.columns) - len(cells)))

    def add_section(self) -> None:
        """Draw a space below the last row."""
        self._sections.add(len(self._rows))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [self._width(k, wrapped=False) for k in range(len(self.columns))]
        kept = list(range(len(widths)))
        for heading in self.spare:
            if _total(widths, kept) > options.max_width:
                kept = [k for k in kept if self.columns[k][0] != heading]
        widths = [self._width(k, wrapped=True) for k in range(len(self.columns))]
        least = _total(widths, kept)
        if least <= options.max_width:
            yield self._table(kept, self.title)
        elif console.is_terminal:
            for k, columns in enumerate(self._groups(widths, kept, options.max_width)):
                yield self._table(columns, "" if k else self.title)
        else:
            long = options.update(width=least)
            yield from console.render(self._table(kept, self.title), long)

    def _width(self, column: int, *, wrapped: bool) -> int:
        """Least width of a column, where a left one's heading may wrap, and its cells if they may.

        Rich's own measure takes ten times as long.
        """
        heading, side = self.columns[column]
        words = [heading] if side == "right" else heading.split()
        cells = [row[column] for row in self._rows]
        if wrapped and side == "left":
            cells = [word for cell in cells for word in cell.split()]
        return max(map(cell_len, [*words, *cells]), default=0)

    def _groups(self, widths: Sequence[int], kept: Sequence[int], most: int) -> list[list[int]]:
        """Columns of several tables that fit one by one, each after the keys."""
        keys = [k for k in kept if k < self.keys]
        groups: list[list[int]] = [[]]
        for k in kept[len(keys) :]:
            if groups[-1] and _total(widths, [*keys, *groups[-1], k]) > most:
                groups.append([])
            groups[-1].append(k)
        return [[*keys, *group] for group in groups]

    def _table(self, kept: Sequence[int], title: str) -> Table:
        """Rich table of some columns."""
        table = Table(
            box=box.SIMPLE_HEAD,
            title=title or None,
            title_justify="left",
            pad_edge=False,
            title_style="bold",
        )
        for heading, side in (self.columns[k] for k in kept):
            right = side == "right"
            table.add_column(heading, justify="right" if right else "left", no_wrap=right)
        for row, cells in enumerate(self._rows):
            table.add_row(*(cells[k] for k in kept), end_section=row + 1 in self._sections)
        return table


def _total(widths: Sequence[int], columns: Sequence[int]) -> int:
    """Width of a table of some columns."""
    return sum(widths[k] for k in columns) + _BETWEEN * (len(columns) - 1) + 2


def new_table(
    columns: Sequence[tuple[str, str]], title: str = "", spare: Sequence[str] = (), keys: int = 1
) -> FittingTable:
    """Table with the house style, see `FittingTable`."""
    return FittingTable(columns, title, spare, keys)
