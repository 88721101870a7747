"""The drawings of the documents are what their program draws, and lead to what is there."""

import ast
import re
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs/figures"))

import attention_study  # noqa: E402
import cost_and_score  # noqa: E402
import draw  # noqa: E402
import engines  # noqa: E402
import equal_cost  # noqa: E402
import global_batch  # noqa: E402
import layer_types  # noqa: E402
import plan_costs  # noqa: E402
import search_steps  # noqa: E402
import server_load  # noqa: E402
from chart import Axis, Chart  # noqa: E402
from drawing import Drawing  # noqa: E402


@pytest.mark.parametrize("name", [*draw.FIGURES, *draw.RECORDINGS])
def test_what_is_committed_is_what_is_drawn(name: str) -> None:
    assert (draw.FOLDER / name).read_text(encoding="utf-8") == {**draw.FIGURES, **draw.RECORDINGS}[name]()


@pytest.mark.parametrize("name", draw.FIGURES)
def test_each_box_leads_to_a_file_that_defines_what_it_names(name: str) -> None:
    links = re.findall(r'<a href="([^"#]+)#?([^"]*)">', (draw.FOLDER / name).read_text(encoding="utf-8"))
    assert links
    for file, defined in links:
        tree = ast.parse((draw.FOLDER / file).read_text(encoding="utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        assert not defined or defined in names, f"{file}#{defined}"


def test_every_word_of_code_in_the_papers_figures_is_in_the_file_that_its_box_leads_to() -> None:
    for name in ("figure_1.svg", "figure_2.svg"):
        text = (draw.FOLDER / name).read_text(encoding="utf-8")
        boxes = re.findall(r'<a href="([^"#]+)[^>]*>(.*?)</a>', text, re.DOTALL)
        for file, box in boxes:
            for word in re.findall(r'class="code">(?:\w+\.)?(\w+)<', box):
                assert re.search(rf"\b{word}\b", (draw.FOLDER / file).read_text(encoding="utf-8")), word


def test_each_number_of_replicas_has_the_same_pairs() -> None:
    for num_replicas in (1, 2, 8):
        ids = np.concatenate([share.ravel() for share in global_batch.dealt(num_replicas)])
        assert sorted(set(ids)) == list(range(14)) and np.count_nonzero(ids) == 106


def test_the_drawn_search_ends_with_the_results_of_the_search() -> None:
    steps, result = search_steps.searched()
    ended = sorted((each.score for step in steps for each in step if each.fate == "ends"), reverse=True)
    np.testing.assert_allclose(ended[:2], result.scores[0], rtol=1e-6)


def test_values_stand_where_their_axes_say() -> None:
    chart = Chart(Drawing(300, 200, ""), (50, 20, 200, 100), Axis("n", 1, 100, {}), Axis("s", 0, 4, {}, False))
    assert [chart.point(*pair) for pair in ((1, 0), (10, 1), (100, 4))] == [(50, 120), (150, 95), (250, 20)]
    with pytest.raises(ValueError, match="^s: 4.5 is not between 0 and 4$"):
        chart.point(10, 4.5)


def test_curves_are_the_figures_of_the_pages() -> None:
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


def test_every_system_of_the_table_has_its_dot_and_a_name_that_can_be_read() -> None:
    page = (ROOT / "docs/table2_measured.md").read_text(encoding="utf-8")
    found = cost_and_score.systems()
    for system in found:
        row = system.name.replace(", 2", ", ensemble of 2")
        assert re.search(rf"^\| {re.escape(row)} \| {system.bleu:.2f}[ (|]", page, re.MULTILINE), row
    assert len(found) == len(re.findall(r"^\|.* \| [\d.]+e\d+ \| [\d.]+e\d+ \|", page, re.MULTILINE))
    text = (draw.FOLDER / "table2.svg").read_text(encoding="utf-8")
    places = [tuple(map(float, pair)) for pair in re.findall(r'<path d="M([\d.]+),([\d.]+)m', text)]
    labels = [cost_and_score.label(place, system) for place, system in zip(places, found, strict=False)]
    marks = [(x - 6, y - 6, x + 6, y + 6) for x, y in places[: len(found)]]
    for number, (left, top, right, bottom) in enumerate(labels):
        for other in [*labels[number + 1 :], *marks]:
            assert left >= other[2] or right <= other[0] or top >= other[3] or bottom <= other[1], found[number].name


def test_every_row_of_the_attention_study_is_drawn_as_its_table_has_it() -> None:
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


def test_every_system_at_equal_cost_is_drawn_as_its_table_has_it() -> None:
    page = (ROOT / "docs/table2_measured.md").read_text(encoding="utf-8").partition("## Equal cost")[2]
    table = re.findall(r"^\| ([^|]+) \| (tenth|fifth|whole) \| [\d,]+ \| ([\d.]+) \|", page, re.MULTILINE)
    drawn = [
        (cost_and_score.SYSTEMS[system][0], share, f"{bleu:.2f}")
        for system, shares in equal_cost.measured().items()
        for share, (_, bleu) in shares.items()
    ]
    assert sorted(table) == sorted(drawn) and len(drawn) >= 9


def test_names_that_would_overlap_are_moved_apart() -> None:
    assert equal_cost.spread([10.0, 12.0, 30.0, 80.0]) == [10.0, 27.0, 44.0, 80.0]


def test_the_server_is_drawn_under_every_load_that_was_measured() -> None:
    assert [clients for clients, _ in server_load.measured("tensorflow", 2)] == [1, 8, 64]
    assert server_load.measured("CTranslate2 by itself", 4)[0][0] == 1  # the other cells are empty
    assert len(server_load.measured("CTranslate2 by itself", 4)) == 1


def test_every_engine_is_drawn_with_both_beams() -> None:
    found = {(search.engine, search.beam) for search in engines.searches()}
    assert len(found) == len(engines.searches()) == 8 and {beam for _, beam in found} == {1, 4}
