"""Plots the attention weights of a translation, like the figures of "Attention Is All You Need".

Without --target, the model first translates the sentence. If --output is a folder, the program writes two pictures for
each kind of attention: a heat map of every layer and head, and the lines from word to word for the heads of one layer.
Layers and heads are counted from 1, as in the paper.

Examples:
    python -m launch.attention --model_dir=runs/mine --source="A dog runs." --output=pictures
    python -m launch.attention --model_dir=runs/mine --source="A dog runs." --target="Ein Hund rennt." \\
        --kind=cross --layer=3 --head=mean --style=maps --output=words.png
    python -m launch.attention --model_dir=runs/mine --source="A dog runs." --kind=encoder --layer=3 --head=1,2 \\
        --query=dog --output=dog.svg
"""

import os
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from absl import flags

from t2t_keras.errors import InputError
from t2t_keras.text.pieces import places_of, readable
from t2t_keras.values import PositiveInt

from . import program
from .flag_groups import decoding_flags
from .flag_types import ANY, DEFINE_number, DEFINE_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from t2t_keras.inference.explain import Explanation, Kind, View
    from t2t_keras.inference.translator import Translator

_FULL_NAMES: dict["Kind", str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
_KINDS = tuple(_FULL_NAMES)
_STYLES = ("maps", "lines")
_FORMATS = ("png", "svg")

_SOURCE = flags.DEFINE_string("source", None, "A sentence in the source language.", required=True)
_TARGET = flags.DEFINE_string("target", None, "A translation of the sentence; default: the model's translation.")
_OUTPUT = DEFINE_path("output", None, "A folder; or, for one picture, a .png or .svg file.", ANY, required=True)
_KIND = flags.DEFINE_multi_enum("kind", [], _KINDS, "The kind of attention; default: all kinds of the model.")
_LAYER = DEFINE_number("layer", None, "A layer, from 1; default: all (maps), the second to last (lines).", PositiveInt)
_HEAD = flags.DEFINE_list("head", [], "Heads, from 1, separated by commas, or mean; default: all.")
_QUERY = flags.DEFINE_string("query", None, "A word; only the lines of this word are drawn.")
_STYLE = flags.DEFINE_multi_enum("style", [], _STYLES, "Heat maps, or lines from word to word; default: both.")
_FORMAT = flags.DEFINE_multi_enum("format", ["png"], _FORMATS, "The format of the files in a folder.")
flags.adopt_module_key_flags(decoding_flags)
flags.mark_flag_as_required("model_dir")


class Picture(NamedTuple):
    """A figure, and the name of its file without suffix."""

    name: str
    figure: "Figure"


def main(argv: list[str]) -> None:
    """Draws and saves the pictures that the flags select."""
    if not _SOURCE.value.strip():
        raise InputError("--source is blank")
    if _QUERY.value is not None and "maps" in _STYLE.value:
        raise InputError("--query cannot be combined with --style=maps, only with lines")
    translator = decoding_flags.load_translator(split="lines")
    from t2t_keras.models.contract import attention_views
    from t2t_keras.pictures.saving import missing_characters, save

    attention_views(translator.model)  # raises if the model does not offer its attention
    explanation = _explain(translator)
    views = _views(explanation)
    pictures = [picture for kind, view in views.items() for picture in _pictures(kind, view)]
    paths = _paths(pictures)
    for path, picture in paths:
        save(picture.figure, path)
        program.say(str(path))
    pieces = [piece for view in views.values() for piece in readable([*view.queries, *view.keys])]
    if missing := missing_characters(pieces):
        characters = f"{' '.join(missing[:20])}{' ...' if len(missing) > 20 else ''}"
        program.warn(f"warning: the font lacks {characters}; .png files show boxes, .svg files show text")


def _explain(translator: "Translator") -> "Explanation":
    """Returns the explanation of the sentence with the given translation, or with the model's translation."""
    if _TARGET.value is not None:
        return translator.explain([_SOURCE.value], [_TARGET.value])[0]
    (translation,) = translator.translate([_SOURCE.value])
    if translation.num_parts != 1:
        limit = f"at most {translator.max_source_length} tokens"
        raise InputError(f"--source is translated in {translation.num_parts} parts of {limit}; give one sentence")
    if not translation.exists:
        raise InputError("the search found no translation; give one as --target")
    program.say(f"target: {translation.text}")
    return translator.explain_tokens(translation.source_ids, translation.token_ids)[0]


def _views(explanation: "Explanation") -> "dict[Kind, View]":
    """Returns the attention of the requested kinds, or of all kinds of the model."""
    from t2t_keras.pictures.attention import MAX_TOKENS

    views = {kind: explanation.view(kind) for kind in _KINDS}
    available = [kind for kind in _KINDS if len(views[kind].weights)]
    missing_names = [_FULL_NAMES[kind] for kind in _KINDS if kind not in available]
    for kind in _KIND.value:
        if kind not in available:
            raise InputError(f"--kind={kind}: the model has no {_FULL_NAMES[kind]}; valid: {', '.join(available)}")
    if missing_names and not _KIND.value:
        program.say(f"the model has no {' and no '.join(missing_names)}")
    selection = [kind for kind in available if not _KIND.value or kind in _KIND.value]
    if _QUERY.value is None:
        return {kind: views[kind] for kind in selection}
    matches = {kind: views[kind] for kind in selection if places_of(_QUERY.value, views[kind].queries)}
    if matches and all(min(places_of(_QUERY.value, view.queries)) >= MAX_TOKENS for view in matches.values()):
        raise InputError(f"--query={_QUERY.value} is not among the first {MAX_TOKENS} tokens, which pictures show")
    if not matches:
        words = list(dict.fromkeys(word for kind in selection for word in readable(views[kind].queries)))
        raise InputError(f"--query={_QUERY.value} is not a word of the sentence; its pieces: {' '.join(words)}")
    return matches


def _pictures(kind: "Kind", view: "View") -> list[Picture]:
    from t2t_keras.pictures.attention import draw_heat_maps, draw_lines

    num_layers, num_heads = view.weights.shape[:2]
    styles = _STYLE.value or (_STYLES if _QUERY.value is None else ("lines",))
    layer = _LAYER.value
    if layer is not None and not 1 <= layer <= num_layers:
        raise InputError(f"--layer={layer}: {_FULL_NAMES[kind]} has layers 1 to {num_layers}")
    valid = [str(number) for number in range(1, num_heads + 1)]
    for head in _HEAD.value:
        if head not in (*valid, "mean"):
            raise InputError(f"--head={head}: {_FULL_NAMES[kind]} has heads 1 to {num_heads}, and mean")
    heads = list(dict.fromkeys(_HEAD.value)) or valid
    weights = np.stack(
        [view.weights.mean(1) if head == "mean" else view.weights[:, int(head) - 1] for head in heads], 1
    )
    names = [f"mean of {num_heads} heads" if head == "mean" else f"head {head}" for head in heads]
    suffix = f"_head{'_'.join(heads)}" if _HEAD.value else ""
    tokens, pictures = (view.queries, view.keys), []
    if "maps" in styles:
        numbers = range(1, num_layers + 1) if layer is None else [layer]
        head_weights = weights[[number - 1 for number in numbers]]
        rows = [f"layer {number}" for number in numbers]
        name = f"{kind}_maps{'' if layer is None else f'_layer{layer}'}{suffix}"
        figure = draw_heat_maps(head_weights, *tokens, row_names=rows, column_names=names, title=_FULL_NAMES[kind])
        pictures.append(Picture(name, figure))
    if "lines" in styles:
        number = layer or max(num_layers - 1, 1)
        query_places = [] if _QUERY.value is None else places_of(_QUERY.value, view.queries)
        title = f"{_FULL_NAMES[kind]}, layer {number} of {num_layers}"
        mean_color = num_heads if len(heads) > 1 else 0
        colors = [mean_color if head == "mean" else int(head) - 1 for head in heads]
        figure = draw_lines(weights[number - 1], *tokens, names=names, colors=colors, only=query_places, title=title)
        pictures.append(Picture(f"{kind}_lines_layer{number}{suffix}", figure))
    return pictures


def _paths(pictures: Sequence[Picture]) -> list[tuple[pathlib.Path, Picture]]:
    """Returns the path of each picture, and creates the folder."""
    output = pathlib.Path(_OUTPUT.value)
    if output.suffix.lower().removeprefix(".") in _FORMATS and not output.is_dir():
        if _FORMAT.present:
            raise InputError(f"--output={output} determines the format; --format requires a folder")
        if len(pictures) > 1:
            names = ", ".join(picture.name for picture in pictures)
            raise InputError(f"--output={output} is one file for {len(pictures)} pictures ({names}); give a folder")
        return [(output, picture) for picture in pictures]
    os.makedirs(output, exist_ok=True)
    return [(output / f"{picture.name}.{end}", picture) for picture in pictures for end in _FORMAT.value]


run = program.command(main)
