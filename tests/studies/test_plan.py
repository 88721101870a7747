"""Hours that a plan says, beside those that finished trainings took."""

import json
import pathlib

from t2t_keras.config import Config
from t2t_keras.models import presets
from t2t_keras.planning.forecast import KINDS, Devices, step
from t2t_keras.studies import plan
from t2t_keras.studies.table import Line, Table

RECORDS = sorted((pathlib.Path(__file__).parents[2] / "docs" / "tables").glob("table[23]/*/seed_1/row.json"))
LENGTH = 16  # of Multi30k's sentences, in pieces


def read(path: pathlib.Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_plan_without_finished_rows_is_within_half_as_much_again_of_what_they_took(tmp_path, monkeypatch):
    """Trainings that go on from others leave dropout out, and draw outputs."""
    records = {path.parts[-3]: read(path) for path in RECORDS}
    fresh = {name: record for name, record in records.items() if "begins_from" not in record["settings"]}
    assert len(fresh) > 25
    nothing = Table("none", "", (), (), (), plotted=None)
    shares = {}
    for name, record in fresh.items():
        results = record["results"]
        measured = results["machine"], results["matrix_flops_per_second"]
        monkeypatch.setattr(plan, "measured_rate", lambda measured=measured: measured)
        seconds, _ = plan.seconds_here(nothing, {}, tmp_path, 0.5, LENGTH)
        shares[name] = seconds(Config.from_dict(record["settings"]["config"])) / (3600 * results["hours"])
    assert {name: share for name, share in shares.items() if not 1 / 1.5 < share < 1.5} == {}


def test_gnmt_of_the_papers_size_waits_for_its_loops():
    """Of 600,000 updates the products alone would take about half an hour."""
    devices = Devices("h100", 8, utilisation=0.4, **KINDS["h100"])
    found = step(presets.preset("gnmt"), devices, 30)
    assert found.loops > 2 * found.products
    assert 600_000 * found.loops > 10 * 3600


def test_a_plan_adds_up_what_is_not_finished(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "measured_rate", lambda: ("2 x A Name", 1e12))
    line = Line("none", (), {})
    table = Table("none", "", (), (line,), (), plotted=None)
    seconds, said = plan.seconds_here(table, {}, tmp_path, 0.25, LENGTH)
    assert "25% of the throughput of matrix products on 2 x A Name." in said
    assert "Hours of unfinished rows: 0." in plan.plan(table, {}, LENGTH, seconds)
