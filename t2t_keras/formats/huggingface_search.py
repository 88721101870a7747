"""Converts the search settings of Hugging Face's transformers to this project's.

Every setting that changes outputs is converted, or named in a note.

Reference: https://huggingface.co/docs/transformers/main_classes/text_generation
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from t2t_keras.config import DecodeConfig
from t2t_keras.errors import named
from t2t_keras.formats.files.setting_files import number_setting, read_json, whole_setting
from t2t_keras.formats.portable_model import normalization, penalty_notes

MAX_POSITIONS = 512  # of Marian models; a limit of this length cuts no translation in practice

# Settings that are not converted, with the values that do not change outputs.
_UNSUPPORTED: Mapping[str, Collection[Any]] = {
    "early_stopping": (False, "never"),
    "num_return_sequences": (1,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0,),
    "do_sample": (False,),
    "penalty_alpha": (0,),
    "dola_layers": (),
    "repetition_penalty": (1,),
    "encoder_repetition_penalty": (1,),
    "encoder_no_repeat_ngram_size": (0,),
    "bad_words_ids": ([],),
    "force_words_ids": ([],),
    "constraints": ([],),
    "forced_bos_token_id": (),
    "forced_decoder_ids": ([],),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "sequence_bias": ({}, []),
    "exponential_decay_length_penalty": (),
    "renormalize_logits": (False,),
    "guidance_scale": (1,),
    "max_time": (),
    "stop_strings": ([],),
    "watermarking_config": (),
    "token_healing": (False,),
}
# Settings that matter only if outputs are sampled; a note then names `do_sample`.
_OF_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "top_h")
# Settings of speed, of what is returned, and of the file itself.
_WITHOUT_EFFECT = (
    *("use_cache", "cache_implementation", "cache_config", "low_memory", "compile_config", "disable_compile"),
    *("output_attentions", "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate"),
    *("transformers_version", "_from_model_config", "remove_invalid_values", "bos_token_id", "_commit_hash"),
    *("is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold"),
    *("assistant_early_exit", "assistant_lookbehind", "target_lookbehind", "prompt_lookup_num_tokens"),
    *("max_matching_ngram_size", "prefill_chunk_size", "use_mtp"),
)
_CONVERTED = (
    *("num_beams", "length_penalty", "no_repeat_ngram_size", "min_length", "min_new_tokens"),
    *("max_length", "max_new_tokens"),
)
# Settings of tokens, which must be the same as settings in config.json, from which the model is converted.
_TOKENS = {name: name for name in ("pad_token_id", "eos_token_id", "decoder_start_token_id")}
_TOKENS["forced_eos_token_id"] = "eos_token_id"
_LONGEST_VALUE = 60  # characters of a value in a note


def read_search(folder: Path, settings: Mapping[str, Any]) -> tuple[DecodeConfig, tuple[str, ...]]:
    """Reads the settings of the search from generation_config.json or, as older models have them, config.json.

    As in transformers, a generation_config.json that was not derived from config.json replaces all search settings of
    the latter.

    Args:
        folder: folder of the model.
        settings: the contents of config.json.

    Returns:
        The settings of this project's search, and notes on settings that are not converted exactly.

    Raises:
        InputError: a setting has the wrong type; names the file, the setting and the value.
    """
    path = folder / "generation_config.json"
    file_settings: Mapping[str, Any] = {}
    generation = settings
    if path.exists():
        file_settings = read_json(path)
        generation = {**settings, **file_settings} if file_settings.get("_from_model_config") else file_settings
    else:
        path = folder / "config.json"
    values = {name: value for name, value in generation.items() if value is not None}  # null means the default
    exponent = float(number_setting(path, values, "length_penalty", 1.0))
    # `min_length` counts the start token, `min_new_tokens` does not.
    fewest = whole_setting(path, values, "min_length", 0) - 1, whole_setting(path, values, "min_new_tokens", 0)
    limit = whole_setting(path, values, "max_new_tokens", 0) or whole_setting(path, values, "max_length", 1) - 1
    sizes: dict[str, Any] = {
        "beam_size": whole_setting(path, values, "num_beams", 1),
        "no_repeat_ngram_size": whole_setting(path, values, "no_repeat_ngram_size", 0),
        "min_length": max(fewest),
    }
    if 0 < limit < MAX_POSITIONS - 1:
        sizes |= {"max_length_factor": 0.0, "max_length_offset": limit}
    with named(path):
        decode = DecodeConfig(**sizes, **normalization(exponent), ends_within_beam=True)
    omissions = [
        f"{name}={_short(value)}" for name, value in values.items() if _is_lost(name, value, settings, file_settings)
    ]
    if limit >= MAX_POSITIONS:
        omissions += [f"{name}={values[name]}" for name in ("max_new_tokens", "max_length") if name in values][:1]
    notes = (f"settings of {path.name} that are not converted: {', '.join(omissions)}",) if omissions else ()
    return decode, penalty_notes(exponent) + notes


def _is_lost(name: str, value: Any, settings: Mapping[str, Any], file_settings: Mapping[str, Any]) -> bool:
    """Returns whether a setting changes outputs but is not converted.

    Args:
        name: name of the setting.
        value: its value, not None.
        settings: the contents of config.json.
        file_settings: the contents of generation_config.json, where each unknown setting may change outputs.
    """
    if name in ("bad_words_ids", "suppress_tokens"):  # no search of this project writes padding
        return any(word not in (settings["pad_token_id"], [settings["pad_token_id"]]) for word in _entries(value))
    if name in _TOKENS:
        return _entries(value) != _entries(settings.get(_TOKENS[name]))
    if name in _UNSUPPORTED:
        return value not in _UNSUPPORTED[name]
    return name in file_settings and name not in (*_CONVERTED, *_OF_SAMPLING, *_WITHOUT_EFFECT)


def _entries(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."
