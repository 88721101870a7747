"""The recipes for small corpora: the changes of each row, its data, and its comparison."""

import dataclasses
import math

import pytest

from t2t_keras.config import DataConfig, differences
from t2t_keras.errors import InputError
from t2t_keras.studies import comparison, recipes
from t2t_keras.studies.data_facts import DataFacts
from t2t_keras.studies.paper_tables import TABLES
from t2t_keras.studies.states import state, write_record
from t2t_keras.studies.study_settings import StudySettings

DATA = {"data.final_marks", "data.lowercase", "data.truecase"}
SIZES = {"data.vocab_size", "model.vocab_size", "model.d_model", "model.d_ff"}
RATE = {"train.warmup_steps", "train.learning_rate_scale"}
SAVING = {"train.checkpoint_steps", "train.validation_steps"}
BATCH = {"train.max_steps", "train.tokens_per_batch", *RATE, *SAVING}


@pytest.fixture
def files(tmp_path) -> tuple[str, ...]:
    paths = [tmp_path / name for name in ("train.en", "train.de", "valid.en", "valid.de")]
    for number, path in enumerate(paths):
        path.write_text(f"Zeile {number}\n" * 3, encoding="utf-8")
    return tuple(map(str, paths))


def table(files=(), **settings):
    return TABLES["recipes"](StudySettings("recipes", files=files, seeds=1, **settings), DataFacts())


def configs(**settings) -> dict:
    jobs = {job.name.partition("/")[0]: job for job in table(**settings).jobs if isinstance(job, recipes.RecipeJob)}
    return {name: job.config for name, job in jobs.items()}


def changed(config, base) -> set[str]:
    return {difference.partition(":")[0] for difference in differences(base, config)}


def test_each_row_changes_the_settings_in_its_name():
    config_by_name = configs()
    assert [*config_by_name] == ["base", "marks", "case", "v4k", "v2k", "batch", "post", "drop", "simcut", "rdrop"]
    base, v4k = config_by_name["base"], config_by_name["v4k"]
    assert changed(config_by_name["marks"], base) == {"data.final_marks"}
    assert changed(config_by_name["case"], base) == DATA
    assert changed(v4k, base) == DATA | SIZES | {"train.learning_rate_scale"}
    v2k = {"train.max_steps", "train.tokens_per_batch", "train.learning_rate_scale", "train.validation_steps"}
    assert changed(config_by_name["v2k"], v4k) == SIZES | v2k
    assert changed(config_by_name["batch"], v4k) == BATCH
    assert changed(config_by_name["post"], config_by_name["batch"]) == RATE | {
        "model.norm_position",
        "model.attention_gain",
    }
    assert changed(config_by_name["drop"], v4k) == {"model.attention_dropout_rate", "model.relu_dropout_rate"}
    half = {"train.max_steps", *RATE, *SAVING, "train.consistency"}
    assert changed(config_by_name["simcut"], v4k) == half
    assert changed(config_by_name["rdrop"], v4k) == half | {"train.consistency_weight"}
    assert config_by_name["simcut"].train.passes * config_by_name["simcut"].train.max_steps == v4k.train.max_steps


def test_all_rows_have_the_same_highest_rate_and_similar_numbers_of_parameters():
    config_by_name = configs()
    for name, config in config_by_name.items():
        train = config.train
        peak = train.learning_rate_scale / math.sqrt(config.model.d_model * train.warmup_steps)
        assert peak == pytest.approx(0.005, rel=1e-3), name
        assert 2.2e6 < sum(config.model.parameter_counts().values()) < 2.4e6, name


def test_the_last_rows_use_the_text_of_the_best_row():
    folders = {job.name: job.data_dir for job in table(winner="v2k").jobs if isinstance(job, recipes.RecipeJob)}
    assert folders["base/seed_1"] == "data/base" and folders["v4k/seed_1"] == "data/v4k"
    assert {folders[f"{name}/seed_1"] for name in ("batch", "post", "drop", "simcut", "rdrop")} == {"data/v2k"}
    assert configs(winner="v2k")["drop"].model.d_model == configs()["v2k"].model.d_model


def test_each_row_is_compared_with_the_first_row_of_the_same_seed():
    jobs = {job.name: job for job in TABLES["recipes"](StudySettings("recipes", seeds=2), DataFacts()).jobs}
    compared = {name: job for name, job in jobs.items() if isinstance(job, comparison.ComparisonJob)}
    assert len(compared) == 9 * 2
    for name, job in compared.items():
        row, seed = name.removesuffix("_compared").split("/")
        assert job.needs == (f"base/{seed}", f"{row}/{seed}") == tuple(member.name for member in job.members)


def test_a_comparison_uses_the_outputs_of_the_evaluations(files, tmp_path, monkeypatch):
    _, job, compared, *_ = table(files).jobs
    references = [f"der Mann {number} geht heute in das Haus" for number in range(30)]
    outputs = {"base": [line.replace("heute", "gestern") for line in references], "marks": references}
    for name, lines in outputs.items():
        folder = tmp_path / name / "seed_1" / "evaluation" / "valid"
        folder.mkdir(parents=True)
        (folder / "hypotheses.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    opened = []

    class Data:
        config = DataConfig()

        def text(self, split):
            assert split == "valid"
            return [], [*references, "more"] if len(opened) == 4 else references

    monkeypatch.setattr(comparison.PreparedData, "open", lambda folder: opened.append(folder) or Data())
    results = comparison.compare(compared, tmp_path)
    assert results["difference"] > 10 and results["p_value"] < 0.01
    assert opened == [tmp_path / "data/base", tmp_path / "data/marks"]
    with pytest.raises(InputError, match="base/seed_1 and marks/seed_1 have different validation references"):
        comparison.compare(compared, tmp_path)
    write_record(compared, tmp_path, results)
    assert state(compared, tmp_path).kind == "finished"
    decode = dataclasses.replace(job.config.decode, beam_size=1)
    other = dataclasses.replace(job, config=dataclasses.replace(job.config, decode=decode))
    changed_job = dataclasses.replace(compared, members=(compared.members[0], other))
    assert state(changed_job, tmp_path)[:2] == ("outdated", "marks/seed_1: decode.beam_size: 4 -> 1")
    (tmp_path / "base/seed_1/evaluation/valid/hypotheses.txt").unlink()
    with pytest.raises(InputError, match=r"hypotheses\.txt is missing; to evaluate base/seed_1 again"):
        comparison.compare(compared, tmp_path)
