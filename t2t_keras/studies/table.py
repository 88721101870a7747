"""A table: its lines, columns and jobs, and its output as Markdown, CSV and SVG."""

import csv
import dataclasses
import io
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from t2t_keras.machine.files import replacing
from t2t_keras.studies.job import Job
from t2t_keras.studies.states import State

Results = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of results.

    Attributes:
        heading: heading of the column.
        key: name of the result.
        text: formats one value.
        has_range: whether to add the lowest and the highest value to the mean of several values.
    """

    heading: str
    key: str
    text: Callable[[float], str]
    has_range: bool = True

    def cell(self, results: Sequence[Results]) -> str:
        """Formats the mean of the values, with the range if it is visible after rounding; "" if there are no values."""
        values = [result[self.key] for result in results if result.get(self.key) is not None]
        if not values:
            return ""
        mean, low, high = map(self.text, (sum(values) / len(values), min(values), max(values)))
        return f"{mean} ({low} to {high})" if self.has_range and low != high else mean


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a table.

    Attributes:
        name: name of the line, for `--only`.
        jobs: names of the jobs whose results the line shows.
        facts: cells that are known without results, by heading; missing headings become empty cells.
    """

    name: str
    jobs: tuple[str, ...]
    facts: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of the paper.

    Attributes:
        name: name of the table's files, such as "table3".
        caption: description of the table, in Markdown.
        jobs: the jobs that produce the results, each after the jobs that it needs.
        lines: the lines, from the top.
        columns: the columns, from the left: columns of results, or headings of facts.
        plotted: the column that is plotted if `draw` is None.
        draw: draws an SVG file, given its path and the results of each line by name; None draws a dot plot.
        needs_data: whether the jobs need prepared data.
        needs_files: whether the jobs prepare text from files.
    """

    name: str
    caption: str
    jobs: tuple[Job, ...]
    lines: tuple[Line, ...]
    columns: tuple[Column | str, ...]
    plotted: Column
    draw: Callable[[pathlib.Path, Mapping[str, Sequence[Results]]], None] | None = None
    needs_data: bool = True
    needs_files: bool = False

    def cells(self, states: Mapping[str, State]) -> list[list[str]]:
        """Returns the cells of the head and of all lines, given the states of all jobs by name.

        A last column "state" describes the unfinished jobs of each line; it is omitted if all jobs are finished.
        """
        head = ["row", *(column if isinstance(column, str) else column.heading for column in self.columns)]
        rows = [[line.name, *(_cell(line, column, states) for column in self.columns)] for line in self.lines]
        missing = [missing_of(line, states) for line in self.lines]
        if not any(missing):
            return [head, *rows]
        return [[*head, "state"], *([*row, text] for row, text in zip(rows, missing, strict=True))]

    def markdown(self, states: Mapping[str, State]) -> str:
        """Returns the table in Markdown, with its caption and the provenance of the results."""
        return f"{self.caption}\n\n{markdown_table(self.cells(states))}\n\n{_provenance(states)}\n"

    def csv(self, states: Mapping[str, State]) -> str:
        """Returns all results of the finished jobs in full precision as CSV, with one job per line."""
        finished = [(line.name, job) for line in self.lines for job in line.jobs if states[job].kind == "finished"]
        names = list(dict.fromkeys(name for _, job in finished for name in states[job].results))
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["row", "job", *names])
        for row, job in finished:
            writer.writerow([row, job, *(states[job].results.get(name, "") for name in names)])
        return text.getvalue()

    def write(self, states: Mapping[str, State], folder: pathlib.Path) -> list[pathlib.Path]:
        """Writes the table as Markdown, CSV and SVG, and returns the paths.

        Raises:
            OSError: a file cannot be written.
        """
        paths = [folder / f"{self.name}.{ending}" for ending in ("md", "csv", "svg")]
        for path, text in zip(paths, (self.markdown(states), self.csv(states)), strict=False):
            with replacing(path) as file:
                file.write(text)
        (self.draw or self._draw_dots)(paths[-1], {line.name: _results(line, states) for line in self.lines})
        return paths

    def _draw_dots(self, path: pathlib.Path, results: Mapping[str, Sequence[Results]]) -> None:
        from t2t_keras.pictures.dot_plot import draw_dots  # imports Matplotlib, which takes half a second

        key = self.plotted.key
        values = {
            name: [each[key] for each in line_results if each.get(key) is not None]
            for name, line_results in results.items()
        }
        draw_dots(path, values, self.plotted.heading)


def missing_of(line: Line, states: Mapping[str, State]) -> str:
    """Describes the unfinished jobs of a line; "" if all are finished."""
    texts = {job: states[job].in_words() for job in line.jobs if states[job].kind != "finished"}
    if len(line.jobs) == 1:
        return "".join(texts.values())
    return "; ".join(f"{job.rpartition('/')[2]}: {text}" for job, text in texts.items())


def _cell(line: Line, column: Column | str, states: Mapping[str, State]) -> str:
    if isinstance(column, str):
        return line.facts.get(column, "")
    return column.cell(_results(line, states))


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Formats rows of cells, the head first, as a Markdown table with aligned columns."""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(3, *map(len, column)) for column in zip(*rows, strict=True)]
    head, *body = [_markdown_row([f"{c:<{w}}" for c, w in zip(row, widths, strict=True)]) for row in rows]
    return "\n".join([head, _markdown_row(["-" * width for width in widths]), *body])


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _results(line: Line, states: Mapping[str, State]) -> list[Results]:
    """Returns the results of a line's finished jobs."""
    return [states[job].results for job in line.jobs if states[job].kind == "finished"]


def _provenance(states: Mapping[str, State]) -> str:
    """Describes the machines, versions and dates of the results."""
    finished = [job_state.results for job_state in states.values() if job_state.kind == "finished"]
    if not finished:
        return "There are no results yet."
    texts = []
    for name, prefix in (("machine", ""), ("versions", ""), ("bleu_signature", "BLEU: "), ("date", "finished ")):
        values = sorted({str(results[name]) for results in finished if name in results})
        if name == "date" and values:
            values = [values[0]] if len(values) == 1 else [f"{values[0]} to {values[-1]}"]
        if values:
            texts.append(prefix + " and ".join(values))
    return f"{'; '.join(texts)}."
