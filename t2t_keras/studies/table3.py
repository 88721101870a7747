"""Table 3 of the paper: variations on the Transformer."""

from collections.abc import Mapping
from typing import cast

from t2t_keras.config import Config, TransformerConfig
from t2t_keras.studies.data_facts import DataFacts
from t2t_keras.studies.job import Job
from t2t_keras.studies.rows import PARAMETERS, Recipe, Row, in_millions
from t2t_keras.studies.study_settings import StudySettings
from t2t_keras.studies.table import Column, Line, Table

_PAPER = (
    Row("base", "base", is_repeated=True),
    *(Row(f"a_{name}", f"table3_a_{name}") for name in ("h1", "h4", "h16", "h32")),
    *(Row(f"b_{name}", f"table3_b_{name}") for name in ("dk16", "dk32")),
    *(Row(f"c_{name}", f"table3_c_{name}") for name in ("n2", "n4", "n8", "d256", "d1024", "ff1024", "ff4096")),
    *(Row(f"d_{name}", f"table3_d_{name}") for name in ("dropout0", "dropout2", "smoothing0", "smoothing2")),
    Row("e_learned", "table3_e_learned"),
    Row("big", "big"),
)


def _tiny(name: str, is_repeated: bool = False, **settings: object) -> Row:
    """Returns a row with the preset `tiny` and some changes to its "model" section."""
    changes = tuple(f"model.{field}={value}" for field, value in settings.items())
    return Row(name, "tiny", changes, is_repeated=is_repeated)


_TINY_BIG_MODEL = ("model.d_model=256", "model.d_ff=512", "model.num_heads=8", "model.dropout_rate=0.4")
# The paper's variations, scaled to the smaller model.
_TINY = (
    Row("base", "tiny", is_repeated=True),
    *(_tiny(f"a_h{heads}", num_heads=heads) for heads in (1, 2, 8, 16)),
    *(_tiny(f"b_dk{width}", d_key=width) for width in (8, 16)),
    *(_tiny(f"c_n{layers}", num_encoder_layers=layers, num_decoder_layers=layers) for layers in (1, 2, 6)),
    *(_tiny(f"c_d{width}", d_model=width) for width in (64, 256)),
    *(_tiny(f"c_ff{width}", d_ff=width) for width in (128, 512)),
    _tiny("d_dropout0", is_repeated=True, dropout_rate=0.0),
    _tiny("d_dropout5", is_repeated=True, dropout_rate=0.5),
    Row("d_smoothing0", "tiny", ("train.label_smoothing=0.0",), is_repeated=True),
    Row("d_smoothing2", "tiny", ("train.label_smoothing=0.2",), is_repeated=True),
    _tiny("e_learned", position_encoding="learned"),
    Row("big", "tiny", (*_TINY_BIG_MODEL, "train.max_steps=24000", "train.keep_checkpoints=20")),
)
ROWS: Mapping[str, tuple[Row, ...]] = {"tiny": _TINY, "paper": _PAPER}
_USUAL_STEPS = {"tiny": 4000, "paper": None}
# Small models overfit small data, so their training stops early. This is not needed on the paper's data with the
# paper's number of updates.
_PATIENCE = {"tiny": 2, "paper": 0}

_PERPLEXITY = Column("PPL (dev)", "valid_perplexity", "{:.2f}".format)
_BLEU = Column("BLEU (dev)", "valid_bleu", "{:.1f}".format)
_TEST_BLEU = Column("BLEU (test)", "test_bleu", "{:.1f}".format)
_POOLED_BLEU = Column("BLEU (both)", "pooled_bleu", "{:.1f}".format)
_BEST_STEP = Column("best at", "best_step", "{:,.0f}".format)


def make_table(settings: StudySettings, data: DataFacts) -> Table:
    """Returns Table 3 for a study. As in the paper, cells that equal those of the row "base" are empty."""
    data.check_task(settings.table, "translation", "denoising")
    rows = ROWS[settings.scale]
    recipe = Recipe(
        settings, data, rows[0], usual_steps=_USUAL_STEPS[settings.scale], patience=_PATIENCE[settings.scale]
    )
    base = _facts(recipe.config(rows[0]))
    jobs: list[Job] = []
    lines: list[Line] = []
    for row in rows:
        trainings = recipe.trainings(row)
        facts = _facts(trainings[0].config)
        if row is not rows[0]:
            facts = {heading: text for heading, text in facts.items() if text != base[heading]}
        lines.append(Line(row.name, tuple(training.name for training in trainings), facts))
        jobs += trainings
    return Table(
        "table3",
        "Variations on the Transformer, after Table 3 of the paper. Empty cells have the value of base. "
        f"{recipe.caption()}",
        tuple(jobs),
        tuple(lines),
        (
            *(heading for heading in base if heading != PARAMETERS),
            _BEST_STEP,
            _PERPLEXITY,
            _BLEU,
            _TEST_BLEU,
            _POOLED_BLEU,
            PARAMETERS,
        ),
        _POOLED_BLEU,
    )


def _facts(config: Config) -> dict[str, str]:
    """Returns the cells of a row that follow from its configuration."""
    model, train = cast(TransformerConfig, config.model), config.train
    d_key, d_value = model.head_widths()
    layers = dict.fromkeys((model.num_encoder_layers, model.num_decoder_layers))
    return {
        "N": " + ".join(map(str, layers)),
        "d_model": str(model.d_model),
        "d_ff": str(model.d_ff),
        "h": str(model.num_heads),
        "d_k": str(d_key),
        "d_v": str(d_value),
        "P_drop": str(model.dropout_rate),
        "ε_ls": str(train.label_smoothing),
        "positions": model.position_encoding,
        "train steps": f"{train.max_steps:,}",
        PARAMETERS: in_millions(model),
    }
