"""The figures in the documents equal the output of the drawing program, and their links exist."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs/figures"))

import attention_study  # noqa: E402
import cost_and_score  # noqa: E402
import draw  # noqa: E402
import equal_cost  # noqa: E402
import layer_types  # noqa: E402
import plan_costs  # noqa: E402


@pytest.mark.parametrize("name", [*draw.FIGURES, *draw.RECORDINGS])
def test_committed_figures_are_current(name: str) -> None:
    assert (draw.FOLDER / name).read_text(encoding="utf-8") == {**draw.FIGURES, **draw.RECORDINGS}[name]()


CHARTS = ("table2", "table2_equal_cost", "attention_study", "plan_cost", "engines", "server_load")


@pytest.mark.parametrize("name", [name for name in draw.FIGURES if name.removesuffix(".svg") not in CHARTS])
def test_links_of_figures_exist(name: str) -> None:
    links = re.findall(r'<a href="([^"#]+)#?([^"]*)">', (draw.FOLDER / name).read_text(encoding="utf-8"))
    assert links
    for file, defined in links:
        tree = ast.parse((draw.FOLDER / file).read_text(encoding="utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        assert not defined or defined in names, f"{file}#{defined}"


def test_curves_agree_with_the_tables() -> None:
    page = (ROOT / "docs/tables_measured.md").read_text(encoding="utf-8")
    for layer, (name, *_) in layer_types.LAYERS.items():
        (first, *_, last), (*_, most) = (
            [value for _, value in layer_types.measured(layer, *measure)]
            for measure in (("seconds", 1e-3), ("bytes", 2**20))
        )
        (row,) = re.findall(rf"^\| {re.escape(name)} \|.*$", page, re.MULTILINE)
        assert f"| {first:.1f} | {last:,.0f} | {most:,.0f} |" in row
    assert plan_costs.measured("time", "preparing") == [(1e5, 7), (1e6, 73), (1e7, 614), (1e8, 5045)]
    assert plan_costs.measured("memory", "planning")[1] == (1e6, 0.07)


def test_figure_of_the_attention_study_agrees_with_its_table() -> None:
    page = (ROOT / "docs/tables_measured.md").read_text(encoding="utf-8").partition("| row | score | d_k |")[2]
    table = re.findall(r"^\| \w+ \| ([^|]+) \| (\d+) \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \|", page, re.MULTILINE)
    drawn = [
        (
            row.score.replace("_", " ") + (f", a window of {row.window}" if row.window else ""),
            str(row.d_key),
            f"{row.bleu:.1f}",
            f"{row.deviation:.2f}",
        )
        for row in attention_study.rows()
    ]
    assert sorted(table) == sorted(drawn) and len(drawn) >= 8


def test_figure_of_equal_cost_agrees_with_its_table() -> None:
    page = (ROOT / "docs/table2_measured.md").read_text(encoding="utf-8").partition("## Equal cost")[2]
    table = re.findall(r"^\| ([^|]+) \| (tenth|fifth|whole) \| [\d,]+ \| ([\d.]+) \|", page, re.MULTILINE)
    drawn = [
        (cost_and_score.SYSTEMS[system][0], share, f"{bleu:.2f}")
        for system, shares in equal_cost.measured().items()
        for share, (_, bleu) in shares.items()
    ]
    assert sorted(table) == sorted(drawn) and len(drawn) >= 9
