"""Choices depend only on pairs, minutes and the speed of the machine, and each has a reason."""

import pytest

from t2t_keras import config
from t2t_keras.errors import InputError
from t2t_keras.models import presets
from t2t_keras.planning.fit_rules import FEWEST_PAIRS, GIVEN, Choice, choose

SPEED = 300.0  # updates per minute: two cores with AVX-512


def choose_values(pairs, minutes, speed=SPEED, *, preset=None, **machine):
    overrides = {"overrides": [Choice("preset", preset, GIVEN)]} if preset else {}
    return {choice.name: choice.value for choice in choose(pairs, minutes, speed, **overrides, **machine)}


@pytest.mark.parametrize("pairs", [200, 2_000, 44_000, 1_000_000, 40_000_000])
@pytest.mark.parametrize("minutes", [0.1, 10, 60, 6000])
@pytest.mark.parametrize("speed", [10.0, 300.0, 20_000.0])
@pytest.mark.parametrize("machine", [{}, {"has_accelerator": True}, {"computes_in_bfloat16": True}])
def test_every_choice_is_a_setting_with_a_reason(pairs, minutes, speed, machine):
    choices = choose(pairs, minutes, speed, **machine)
    names = [choice.name for choice in choices]
    assert len(set(names)) == len(names)
    assert all(choice.reason and not choice.reason.endswith(".") for choice in choices)
    values = {choice.name: choice.value for choice in choices}
    settings = [f"{name}={value}" for name, value in values.items() if "." in name]
    chosen_config = config.override(presets.preset(values["preset"]), settings)
    assert chosen_config.model.dropout_rate < 0.5
    assert 2 * values["held_out_pairs"] <= pairs / 2


def test_more_text_gets_more_entries_and_larger_sets():
    rows = [choose_values(pairs, 60) for pairs in (300, 10_000, 100_000, 1_000_000, 10_000_000)]  # in one hour
    for name in ("data.vocab_size", "held_out_pairs"):
        values = [row[name] for row in rows]
        assert values == sorted(values)
    assert [row["data.vocab_size"] for row in rows] == [2000, 4000, 8000, 16000, 37000]
    assert [row["held_out_pairs"] for row in rows] == [50, 500, 1000, 1000, 1000]


def test_more_passes_get_more_dropout_and_are_validated_by_translations():
    # 3.7, 7.9, 8.1, 17, 74 and 450 passes through the text.
    rows = [choose_values(pairs, 10) for pairs in (200_000, 93_000, 91_000, 44_000, 10_000, 2_000)]
    assert [row["model.dropout_rate"] for row in rows] == [0.0, 0.0, 0.1, 0.1, 0.3, 0.4]
    assert [row["train.best_metric"] for row in rows] == ["loss", "loss", "loss", "loss", "bleu", "bleu"]
    assert [row["train.patience"] > 0 for row in rows] == [False, False, False, False, True, True]


def test_short_trainings_change_the_recipe_of_the_preset():
    names = ("train.tokens_per_batch", "train.warmup_steps", "train.learning_rate_scale", "train.ema_decay")
    assert [choose_values(44_000, 10)[name] for name in names] == [2048, 500, 0.99, 0.99]
    assert not choose_values(44_000, 60).keys() & {*names, "model.num_encoder_layers"}


def test_a_faster_machine_gets_more_layers_and_a_slower_one_a_shorter_warm_up():
    rows = [choose_values(44_000, 5, speed) for speed in (50, 130, 400, 2_000)]
    assert [row["model.num_encoder_layers"] for row in rows] == [1, 1, 2, 4]
    assert [row["model.num_decoder_layers"] for row in rows] == [1, 1, 2, 4]
    assert [row["train.warmup_steps"] for row in rows] == [180, 470, 500, 500]
    assert [row["data.vocab_size"] for row in rows] == [4000, 4000, 4000, 8000]
    assert [row["updates"] for row in rows] == [735, 1912, 4000, 10_000]


@pytest.mark.parametrize("minutes", [2, 5, 30, 60])
def test_half_the_speed_and_twice_the_time_give_the_same_choices(minutes):
    saving = ("train.checkpoint_minutes", "train.keep_checkpoints")
    rows = [choose_values(44_000, minutes, 300), choose_values(44_000, 2 * minutes, 150)]
    fast, slow = ({name: value for name, value in row.items() if name not in saving} for row in rows)
    assert fast == slow


def test_the_large_model_needs_text_hours_and_an_accelerator():
    assert choose_values(1_000_000, 600, has_accelerator=True)["preset"] == "base"
    assert choose_values(1_000_000, 600)["preset"] == "tiny"
    assert choose_values(1_000_000, 60, has_accelerator=True)["preset"] == "tiny"
    assert choose_values(10_000, 600, has_accelerator=True)["preset"] == "tiny"


def test_bfloat16_is_used_if_the_processor_supports_it():
    assert choose_values(44_000, 5, computes_in_bfloat16=True)["train.mixed_bfloat16"] is True
    assert choose_values(44_000, 5, computes_in_bfloat16=True, preset="base")["train.mixed_bfloat16"] is True
    assert "train.mixed_bfloat16" not in choose_values(44_000, 5)
    assert "train.mixed_bfloat16" not in choose_values(44_000, 5, computes_in_bfloat16=True, preset="rnn_tiny")
    assert "train.mixed_bfloat16" not in choose_values(44_000, 5, computes_in_bfloat16=True, has_accelerator=True)


def test_a_tpu_gets_static_shapes():
    assert choose_values(44_000, 5, has_accelerator=True, has_tpu=True)["train.static_shapes"] is True
    assert "train.static_shapes" not in choose_values(44_000, 5, has_accelerator=True)


def test_the_number_of_updates_depends_on_the_chosen_layers_and_entries():
    layers = [Choice(f"model.num_{side}_layers", "4", GIVEN) for side in ("encoder", "decoder")]
    overrides = [*layers, Choice("data.vocab_size", 8000, GIVEN)]
    assert choose_values(44_000, 5, 130)["updates"] == 1912
    values = choose_values(44_000, 5, 130, overrides=overrides)
    assert (values["updates"], values["model.num_encoder_layers"], values["train.warmup_steps"]) == (650, "4", 160)


def test_the_number_of_updates_of_the_presets_recipe_depends_on_the_entries_as_well():
    """In 180,000 units of work, an update with twice the tokens takes 2 with 8,000 entries, and 4.6 with 37,000."""
    assert [choose_values(pairs, 600)["updates"] for pairs in (100_000, 10_000_000)] == [90_000, 39_046]


@pytest.mark.parametrize(
    ("max_steps", "updates", "layers"), [(600, 600, 1), (2000, 2000, 2), (1_000_000, 4000, 2), (4001, 4000, 2)]
)
def test_a_given_number_of_updates_replaces_the_possible_number_only_if_it_is_smaller(max_steps, updates, layers):
    """In 5 minutes, this machine has time for 4,000 updates."""
    values = choose_values(44_000, 5, 400, overrides=[Choice("train.max_steps", str(max_steps), GIVEN)])
    assert (values["updates"], values["model.num_encoder_layers"]) == (updates, layers)
    assert values["train.warmup_steps"] == min(500, updates // 4)


def test_too_few_pairs_are_rejected():
    with pytest.raises(InputError, match=f"the training text has only 199 usable pairs; at least {FEWEST_PAIRS} are"):
        choose(FEWEST_PAIRS - 1, 60, SPEED)
