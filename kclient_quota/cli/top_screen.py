"""The screen of `kclient-quota top`, for those who have textual."""

import asyncio
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Footer, Input, Static
from textual.worker import get_current_worker

from kclient_quota.cli.running import TERMINATED
from kclient_quota.clock import unix_ms
from kclient_quota.errors import KclientQuotaError
from kclient_quota.operate.top import COLUMNS, SORTS, Row, cells, details

Look = Callable[[float], None]
Rows = Callable[[str, str], list[Row]]
"""Given what to sort by and what clients shall have in their names."""
Summary = Callable[[Sequence[Row]], str]


class TopScreen(App[None]):
    """Clients in a table that a keyboard sorts and filters; the one under the cursor in full below.

    Args:
        look: waits for so many seconds and takes in what comes meanwhile; called in a thread.
        rows: what is known.
        summary: of rows, in words.
        interval_s: how long to look between two pictures.
        sort: what to sort by at first.
        wanted: what to filter by at first.

    Attributes:
        failure: why the source could not be read, if so; the screen is then closed.
    """

    TITLE = "kclient-quota top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #summary, #details { height: 1; padding: 0 1; }
    #details { height: 3; background: $panel; }
    #filter { display: none; height: 1; border: none; padding: 0 1; }
    #filter.shown { display: block; }
    DataTable { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("q", "quit", "Quit"),
        ("s", "sort", "Sort by the next"),
        ("slash", "filter", "Filter"),
        ("escape", "show_all", "Show all"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),  # textual would only name another key
        Binding("ctrl+z", "suspend_process", "Suspend", show=False, priority=True),
    ]

    def __init__(
        self, look: Look, rows: Rows, summary: Summary, *, interval_s: float, sort: str, wanted: str = ""
    ) -> None:
        super().__init__()
        self._look = look
        self._rows_of = rows
        self._summary = summary
        self._interval_s = interval_s
        self._sort = sort
        self._wanted = wanted
        self._shown: list[Row] = []
        self.failure: KclientQuotaError | None = None

    def compose(self) -> ComposeResult:
        """Summary, table, the client under the cursor, the filter, keys."""
        yield Static(id="summary", markup=False)
        table: DataTable[str | Text] = DataTable(cursor_type="row", cell_padding=0)
        for column in COLUMNS:
            table.add_column(column.head, key=column.head, width=column.width + 1)
        yield table
        yield Static(id="details", markup=False)
        yield Input(self._wanted, placeholder="client.id or user", id="filter")
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look."""
        with suppress(NotImplementedError, RuntimeError, ValueError):  # where a loop hears no signals
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, self._terminate)
            loop.add_signal_handler(signal.SIGINT, self.exit)  # asyncio's own cancels what may be under way, or not end
        self.query_one(DataTable).focus()
        self.show()
        self._watch()

    def _terminate(self) -> None:
        """Somebody has sent SIGTERM: end in order, or the terminal would be left without lines and echo."""
        self.exit(return_code=TERMINATED)

    @work(thread=True, exclusive=True)
    def _watch(self) -> None:
        worker = get_current_worker()
        while not worker.is_cancelled:
            try:
                self._look(self._interval_s)
            except KclientQuotaError as error:
                self.failure = error
                self.call_from_thread(self.exit)
                return
            if not worker.is_cancelled:
                self.call_from_thread(self._show_if_there)

    def _show_if_there(self) -> None:
        if self.is_running and self.query("#summary"):  # not while the screen is being taken down
            self.show()

    def show(self) -> None:
        """Draw what is known now; the cursor stays with its client."""
        now_ms = unix_ms()
        table = self.query_one(DataTable)
        chosen = self._key(table.cursor_row)
        self._shown = self._rows_of(self._sort, self._wanted)
        table.clear()
        for line in cells(self._shown, now_ms):
            table.add_row(*map(Text, line))  # no markup: names are what clients say they are
        keys = [(row.instance, row.kind) for row in self._shown]
        if chosen in keys:
            table.move_cursor(row=keys.index(chosen))
        which = f", those with {self._wanted!r}" if self._wanted else ""
        self.query_one("#summary", Static).update(f"{self._summary(self._shown)}; sorted by {self._sort}{which}")
        self._show_details(table.cursor_row)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Show the client under the cursor."""
        self._show_details(event.cursor_row)

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the column that was clicked."""
        self._sort = next((each.sort for each in COLUMNS if each.head == event.column_key.value), self._sort)
        self.show()

    def action_sort(self) -> None:
        """Sort by the next thing."""
        self._sort = _after(SORTS, self._sort)
        self.show()

    def action_filter(self) -> None:
        """Ask for a filter."""
        asked = self.query_one("#filter", Input)
        asked.add_class("shown")
        asked.focus()

    def action_show_all(self) -> None:
        """Drop the filter."""
        self.query_one("#filter", Input).value = ""
        self._filter("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while somebody types."""
        self._wanted = event.value
        self.show()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Back to the table."""
        self._filter(event.value)

    def _filter(self, wanted: str) -> None:
        self._wanted = wanted
        self.query_one("#filter", Input).remove_class("shown")
        self.query_one(DataTable).focus()
        self.show()

    def _key(self, at: int) -> tuple[str, str] | None:
        return (self._shown[at].instance, self._shown[at].kind) if 0 <= at < len(self._shown) else None

    def _show_details(self, at: int) -> None:
        words = (
            details(self._shown[at], unix_ms()) if 0 <= at < len(self._shown) else "no client has pushed anything yet"
        )
        for line in self.query("#details").results(Static):  # none while the screen is put up or taken down
            line.update(words)


def _after(names: Sequence[str], name: str) -> str:
    return names[(names.index(name) + 1) % len(names)]
