"""The predicted hours of a plan, compared with those of finished trainings."""

import json
import pathlib

from t2t_keras.config import Config
from t2t_keras.models import presets
from t2t_keras.planning.forecast import KINDS, Devices, step
from t2t_keras.studies import plan
from t2t_keras.studies.table import Line, Table

RECORDS = sorted((pathlib.Path(__file__).parents[2] / "docs" / "tables").glob("table[23]/*/seed_1/row.json"))
LENGTH = 16  # pieces per sentence of Multi30k


def read_record(path: pathlib.Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_plan_without_finished_rows_is_at_most_half_too_high_or_low(tmp_path, monkeypatch):
    """Trainings that continue others are left out, and those that draw outputs."""
    records = {path.parts[-3]: read_record(path) for path in RECORDS}
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


def test_the_loops_of_gnmt_take_most_of_its_time():
    """The products of 600,000 updates would take only about half an hour."""
    devices = Devices("h100", 8, utilisation=0.4, **KINDS["h100"])
    actual = step(presets.preset("gnmt"), devices, 30)
    assert actual.loops > 2 * actual.products
    assert 600_000 * actual.loops > 10 * 3600


def test_a_plan_sums_the_unfinished_trainings(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "measured_rate", lambda: ("2 x A Name", 1e12))
    line = Line("none", (), {})
    table = Table("none", "", (), (line,), (), plotted=None)
    seconds, reported = plan.seconds_here(table, {}, tmp_path, 0.25, LENGTH)
    assert "25% of the throughput of matrix products on 2 x A Name." in reported
    assert "Hours of unfinished rows: 0." in plan.plan(table, {}, LENGTH, seconds)
