"""The tables of the paper: all rows with their changes."""

import dataclasses
import math

import pytest

from t2t_keras.config import DataConfig, differences
from t2t_keras.errors import InputError
from t2t_keras.models import presets
from t2t_keras.studies import equal_cost, table2, table3
from t2t_keras.studies.data_facts import DataFacts
from t2t_keras.studies.paper_tables import TABLES
from t2t_keras.studies.rows import Recipe, Row
from t2t_keras.studies.study_settings import SCALES, StudySettings

DATA = DataFacts(directory="/data", vocab_size=8000, vocabulary="a", pairs=10, source_tokens=90, target_tokens=110)
TREES = dataclasses.replace(DATA, config=DataConfig(task="parsing"))
# The settings that each row of the paper's table changes, in order.
WIDTH, LAYERS = {"model.d_model"}, {"model.num_encoder_layers", "model.num_decoder_layers"}
BIG = {"model.d_ff", "model.num_heads", "model.dropout_rate", "train.max_steps", "train.keep_checkpoints"} | WIDTH
CHANGES = {
    "a": [{"model.num_heads"}] * 4,
    "b": [{"model.d_key"}] * 2,
    "c": [LAYERS] * 3 + [WIDTH] * 2 + [{"model.d_ff"}] * 2,
    "d": [{"model.dropout_rate"}] * 2 + [{"train.label_smoothing"}] * 2,
    "e": [{"model.position_encoding"}],
    "big": [BIG],
}


# The table of recipes has no rows in the paper's sizes.
TABLES_AND_SCALES = [(name, scale) for name in TABLES for scale in SCALES if (name, scale) != ("recipes", "paper")]


def table_of(name: str, settings: StudySettings):
    """Returns a table for data of its task."""
    return TABLES[name](settings, TREES if name == "4" else DATA)


def configs(scale: str, **settings) -> dict:
    """Returns the configuration of each row of Table 3."""
    rows = table3.ROWS[scale]
    recipe = Recipe(StudySettings("3", scale, **settings), DATA, rows[0])
    return {row.name: recipe.config(row) for row in rows}


def changed(config, base) -> set[str]:
    return {difference.partition(":")[0] for difference in differences(base, config)}


@pytest.mark.parametrize("scale", SCALES)
def test_rows_of_table_3_have_the_changes_of_the_paper(scale):
    base, *others = (actual := configs(scale)).values()
    letters = [name.partition("_")[0] for name in actual]
    assert letters == ["base", *(letter for letter, rows in CHANGES.items() for _ in rows)]
    follows = {"train.validation_steps"}  # the place of a validation
    assert [changed(config, base) - follows for config in others] == sum(CHANGES.values(), [])


def test_table_3_in_the_papers_sizes_equals_the_presets():
    """Apart from settings that a study determines: data, search, seed and the interval of validation."""
    for row, config in zip(table3.ROWS["paper"], configs("paper").values(), strict=True):
        preset = presets.preset(row.preset)
        assert changed(config, preset) <= {"model.vocab_size", "train.validation_steps"} | {
            difference for difference in changed(config, preset) if difference.startswith("data.")
        }


def test_a_shorter_study_keeps_its_proportions_and_the_highest_rate():
    full, short = configs("tiny"), configs("tiny", steps=1000)
    for name in ("base", "big", "c_d64"):
        before, after = full[name].train, short[name].train
        assert (after.max_steps, after.warmup_steps, after.checkpoint_steps) == (before.max_steps / 8, 250, 25)
        peaks = [train.learning_rate_scale / math.sqrt(train.warmup_steps) for train in (before, after)]
        assert peaks[0] == pytest.approx(peaks[1])
        assert after.validation_steps % after.checkpoint_steps == 0
        assert after.patience == 0
    assert short["big"].train.max_steps == 3 * short["base"].train.max_steps == 3000


@pytest.mark.parametrize(("name", "scale"), TABLES_AND_SCALES)
def test_every_row_of_every_table_has_a_preset_and_valid_settings(name, scale):
    table = table_of(name, StudySettings(name, scale, seeds=2))
    names = [job.name for job in table.jobs]
    assert len(set(names)) == len(names) and len({line.name for line in table.lines}) == len(table.lines)
    assert [job for line in table.lines for job in line.jobs] == names
    for number, job in enumerate(table.jobs):
        assert set(job.needs) <= set(names[:number])
    headings = [column if isinstance(column, str) else column.heading for column in table.columns]
    assert len(set(headings)) == len(headings) and table.plotted in table.columns
    for line in table.lines:
        assert set(line.facts) <= set(headings)


def test_every_small_system_has_the_same_updates_batches_and_search():
    table = TABLES["2"](StudySettings("2"), DATA)
    configs = [job.config for job in table.jobs if job.config and not job.needs]
    assert {(c.train.max_steps, c.train.tokens_per_batch, c.decode, c.data) for c in configs} == {
        (2500, 4096, configs[0].decode, DATA.config)
    }
    assert {line.name for line in table.lines} >= {"transformer", "transformer_ensemble", "gnmt", "gnmt_ensemble"}


@pytest.mark.parametrize("scale", SCALES)
def test_systems_at_equal_cost_get_the_updates_that_fit_the_time_of_the_slowest(scale, tmp_path):
    table = TABLES["2_equal_cost"](StudySettings("2_equal_cost", scale), DATA)
    configs = {line.name: job.config for line, job in zip(table.lines, table.jobs, strict=True)}
    systems = {name.rpartition("_")[0] for name in configs}
    assert systems == {row.name for row in table2.ROWS[scale] if not row.begins_from}
    for name in systems:
        tenth, fifth, whole = (configs[f"{name}_{share}"].train.max_steps for share in ("tenth", "fifth", "whole"))
        assert (tenth, fifth) == (pytest.approx(whole / 10, abs=1), pytest.approx(whole / 5, abs=1))
    if scale == "tiny":
        costs = {name: configs[f"{name}_whole"].train.max_steps * equal_cost.SECONDS[name] for name in systems}
        assert list(costs.values()) == pytest.approx([2500 * 1.141] * len(costs), rel=1e-3)
        assert configs["deep_att_whole"].train.max_steps == 2500
    assert "Row transformer" not in table.caption and "10 pairs" in table.caption
    numbers = {"flops_by_count": 1e14, "test_bleu": 30.0}
    table.draw(tmp_path / "picture.svg", {line.name: [numbers] for line in table.lines[:4]})
    assert "training FLOPs, counted" in (tmp_path / "picture.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize("settings, average", [((), "around the one"), (("train.patience=0",), "of its last 10")])
def test_the_caption_names_the_average_that_the_settings_select(settings, average):
    assert average in TABLES["3"](StudySettings("3", settings=settings), DATA).caption


@pytest.mark.parametrize("table", ["2", "2_equal_cost", "3", "4", "attention"])
def test_data_of_a_different_task_is_rejected(table):
    data, expected = (DATA, "parsing") if table == "4" else (TREES, "translation or denoising")
    with pytest.raises(InputError, match=f"^/data: --table={table} needs data of --task={expected}, not of "):
        TABLES[table](StudySettings(table), data)


def test_a_row_initialised_from_another_has_its_seeds():
    rows = Row("one", "tiny", is_repeated=True), Row("more", "tiny", is_repeated=True, begins_from="one")
    recipe = Recipe(StudySettings("3"), DATA, rows[0])
    first = recipe.trainings(rows[0])
    more = recipe.trainings(rows[1], first)
    assert [(job.needs, job.begins_from) for job in more] == [((job.name,), job) for job in first]


@pytest.mark.parametrize("name", ["train.seed", "data.lowercase", "model.vocab_size", "model.family"])
def test_settings_that_data_and_rows_determine_are_rejected(name):
    with pytest.raises(
        InputError,
        match=f"--set {name}=1: in a study, the data and the rows determine {name}",
    ):
        TABLES["3"](StudySettings("3", settings=(f"{name}=1",)), DATA)
