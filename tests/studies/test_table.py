"""A table of artificial results, cell by cell."""

import csv
from types import SimpleNamespace

import pytest

from t2t_keras.models import presets
from t2t_keras.studies.plan import planned_flops, seconds_here
from t2t_keras.studies.states import State
from t2t_keras.studies.table import Column, Line, Table

SCORE = Column("BLEU", "score", "{:.1f}".format)
LINES = (
    Line("one", ("one/seed_1", "one/seed_2"), {"h": "8", "note": "a|b"}),
    Line("two", ("two/seed_1",), {"h": "4"}),
    Line("three", ("three/seed_1",), {}),
)
TABLE = Table("made_up", "A caption.", (), LINES, ("h", SCORE, "note"), SCORE)


def finished(**results) -> State:
    return State("finished", "finished", results)


STATES = {
    "one/seed_1": finished(score=20.04, machine="2 x core", date="2026-01-02"),
    "one/seed_2": finished(score=21.0, machine="2 x core", date="2026-01-04", more="x"),
    "two/seed_1": State("conflicting", "train.seed: 1 -> 2", {}),
    "three/seed_1": finished(score=19.96),
}


def test_cells_are_facts_and_means_with_their_range():
    assert TABLE.cells(STATES) == [
        ["row", "h", "BLEU", "note", "state"],
        ["one", "8", "20.5 (20.0 to 21.0)", "a|b", ""],
        ["two", "4", "", "", "has different settings: train.seed: 1 -> 2"],
        ["three", "", "20.0", "", ""],
    ]


def test_a_finished_table_has_no_states():
    states = {**STATES, "two/seed_1": finished(score=3)}
    assert TABLE.cells(states)[0] == ["row", "h", "BLEU", "note"]
    assert all(len(row) == 4 for row in TABLE.cells(states))
    assert TABLE.cells({**STATES, "one/seed_2": finished(score=20.0)})[1][2] == "20.0"
    assert TABLE.cells({**states, "one/seed_2": State("unfinished", "3 of 6 updates", {})})[1][2:] == [
        "20.0",
        "a|b",
        "seed_2: 3 of 6 updates",
    ]


def test_csv_contains_every_result():
    lines = list(csv.reader(TABLE.csv(STATES).splitlines()))
    assert lines == [
        ["row", "job", "score", "machine", "date", "more"],
        ["one", "one/seed_1", "20.04", "2 x core", "2026-01-02", ""],
        ["one", "one/seed_2", "21.0", "2 x core", "2026-01-04", "x"],
        ["three", "three/seed_1", "19.96", "", "", ""],
    ]


def test_files_are_replaced_atomically(tmp_path, monkeypatch):
    paths = TABLE.write(STATES, tmp_path)
    assert [path.name for path in paths] == ["made_up.md", "made_up.csv", "made_up.svg"]
    assert paths[0].read_text(encoding="utf-8") == TABLE.markdown(STATES)
    assert paths[1].read_text(encoding="utf-8") == TABLE.csv(STATES)
    before = paths[0].read_bytes()
    monkeypatch.setattr(Table, "markdown", lambda self, states: 3)
    with pytest.raises(TypeError):
        TABLE.write(STATES, tmp_path)
    assert paths[0].read_bytes() == before and len(list(tmp_path.iterdir())) == 3


def test_hours_are_predicted_from_rows_of_the_same_family(tmp_path):
    """The hours of a training that continues another do not include the other's."""
    config, other = (presets.preset(name) for name in ("tiny", "rnn_tiny"))
    jobs = [SimpleNamespace(name=name, config=config, needs=needs) for name, needs in (("a", ()), ("b", ("a",)))]
    jobs += [SimpleNamespace(name="c", config=other, needs=()), SimpleNamespace(name="d", config=None, needs=())]
    table = SimpleNamespace(jobs=jobs)
    states = {name: finished(hours=hours) for name, hours in (("a", 2.0), ("b", 50.0), ("c", 10.0), ("d", 7.0))}
    seconds, _ = seconds_here(table, states, tmp_path, 0.5, 20)
    assert seconds(config) == pytest.approx(7200) and seconds(other) == pytest.approx(36000)
    early = {**states, "a": finished(hours=2.0, updates=config.train.max_steps / 4)}  # ended early by its patience
    seconds, _ = seconds_here(table, early, tmp_path, 0.5, 20)
    assert seconds(config) == pytest.approx(4 * 7200)
    states["c"] = State("unfinished", "missing", {})
    seconds, _ = seconds_here(table, states, tmp_path, 0.5, 20)
    products = 7200 * planned_flops(other, 20) / planned_flops(config, 20)
    assert products < seconds(other) < 1.02 * products  # the rest is for additive scores
