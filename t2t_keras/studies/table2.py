"""Table 2 of the paper: the Transformer and the systems it is compared with, on the same data."""

from collections.abc import Mapping

from t2t_keras.studies.data_facts import DataFacts
from t2t_keras.studies.job import Job
from t2t_keras.studies.plan import scientific
from t2t_keras.studies.rows import PARAMETERS, Recipe, Row, ensemble, in_millions
from t2t_keras.studies.study_settings import StudySettings
from t2t_keras.studies.table import Column, Line, Table
from t2t_keras.studies.training_job import TrainingJob

# These scales raise the peak learning rate from the presets' 0.001 by a factor of 2.5, 5, 6.25 or 15.6. For the rates
# that were tried, see docs/table2_measured.md.
_DEEP_ATT = ("train.learning_rate_scale=1.265",)
_GNMT = ("train.learning_rate_scale=2.53",)
_RNN = (*_GNMT, "model.num_encoder_layers=1", "model.num_decoder_layers=2", "model.readout=state_context")
_CONV_S2S = ("train.learning_rate_scale=7.9",)
_BYTENET = ("train.learning_rate_scale=5.59",)
_MOE = ("train.learning_rate_scale=2.236",)
# GNMT's refinement uses no dropout. Its constant learning rate is a tenth of the rate at the end of maximum-likelihood
# training.
_CONTINUED = ("model.dropout_rate=0", "train.schedule=constant", "train.hold_steps=0", "train.warmup_steps=100")
_TINY_SAVING = ("train.checkpoint_steps=50", "train.keep_checkpoints=5")
_TINY_CONTINUED = (*_CONTINUED, "train.learning_rate_scale=1.77e-4", "train.max_steps=1000", *_TINY_SAVING)
_PAPER_CONTINUED = (*_CONTINUED, "train.learning_rate_scale=8.9e-6", "train.max_steps=30000")
_TINY_RISK = (*_TINY_CONTINUED, "train.objective=risk")
_PAPER_RISK = (*_PAPER_CONTINUED, "train.objective=risk", "train.risk_samples=15")

ROWS: Mapping[str, tuple[Row, ...]] = {
    "tiny": (
        Row("transformer", "tiny", label="Transformer", is_repeated=True),
        Row("transformer_moe", "moe_tiny", label="Transformer with experts"),
        Row("bytenet", "bytenet_tiny", _BYTENET, label="ByteNet"),
        Row("deep_att", "deep_att_tiny", _DEEP_ATT, label="Deep-Att", is_repeated=True),
        Row("rnn_attention", "rnn_tiny", _RNN, label="RNN with attention", is_repeated=True),
        Row("gnmt", "rnn_tiny", _GNMT, label="GNMT", is_repeated=True),
        Row("gnmt_more", "rnn_tiny", _TINY_CONTINUED, label="GNMT, continued", is_repeated=True, begins_from="gnmt"),
        Row("gnmt_rl", "rnn_tiny", _TINY_RISK, label="GNMT + RL", is_repeated=True, begins_from="gnmt"),
        Row("conv_s2s", "conv_tiny", _CONV_S2S, label="ConvS2S", is_repeated=True),
        Row("moe", "moe_rnn_tiny", _MOE, label="MoE"),
        Row("moe_none", "moe_rnn_tiny", (*_MOE, "model.num_experts=0"), label="MoE without experts"),
    ),
    "paper": (
        Row("transformer_base", "base", label="Transformer (base)", is_repeated=True),
        Row("transformer_big", "big", label="Transformer (big)", is_repeated=True),
        Row("bytenet", "bytenet", label="ByteNet", is_repeated=True),
        Row("deep_att", "deep_att", label="Deep-Att", is_repeated=True),
        Row("gnmt", "gnmt", label="GNMT", is_repeated=True),
        Row("gnmt_more", "gnmt", _PAPER_CONTINUED, label="GNMT, continued", is_repeated=True, begins_from="gnmt"),
        Row("gnmt_rl", "gnmt", _PAPER_RISK, label="GNMT + RL", is_repeated=True, begins_from="gnmt"),
        Row("conv_s2s", "conv_s2s", label="ConvS2S", is_repeated=True),
        Row("moe", "moe", label="MoE", is_repeated=True),
        Row("moe_none", "moe", ("model.num_experts=0",), label="MoE without experts", is_repeated=True),
    ),
}
# All small models are trained for the same number of updates with the same batch size. The models of the paper's sizes
# use the settings of their own papers.
COMMON = {"tiny": ("train.tokens_per_batch=4096", "train.max_steps=8000"), "paper": ()}
USUAL_STEPS = {"tiny": 2500, "paper": None}

BLEU = Column("BLEU", "test_bleu", "{:.2f}".format)
# These columns are also used by `equal_cost`.
SCORES = (
    BLEU,
    Column("BLEU, tokenised, lowercased", "test_bleu_tokenised_lowercased", "{:.2f}".format),
    Column("PPL (dev)", "valid_perplexity", "{:.2f}".format),
    Column("FLOPs, counted", "flops_by_count", scientific, has_range=False),
)
HOURS = Column("hours", "hours", "{:.2f}".format, has_range=False)
_COLUMNS = (
    "system",
    *SCORES,
    Column("FLOPs, by time", "flops_by_time", scientific, has_range=False),
    PARAMETERS,
    HOURS,
    Column("output tokens/s", "output_tokens_per_second", "{:,.0f}".format, has_range=False),
)


def make_table(settings: StudySettings, data: DataFacts) -> Table:
    """Returns Table 2 for a study, with a line for each system and for the ensemble of its seeds, if it has several."""
    data.check_task(settings.table, "translation", "denoising")
    rows = ROWS[settings.scale]
    recipe = Recipe(settings, data, rows[0], COMMON[settings.scale], USUAL_STEPS[settings.scale])
    jobs: list[Job] = []
    lines: list[Line] = []
    by_row: dict[str, tuple[TrainingJob, ...]] = {}
    for row in rows:
        trainings = by_row[row.name] = recipe.trainings(row, by_row.get(row.begins_from, ()))
        model, count = trainings[0].config.model, len(trainings)
        jobs += trainings
        facts = {"system": row.label, PARAMETERS: in_millions(model)}
        lines.append(Line(row.name, tuple(job.name for job in trainings), facts))
        if count > 1:
            jobs.append(ensemble(row, trainings))
            facts = {"system": f"{row.label}, ensemble of {count}", PARAMETERS: in_millions(model, count)}
            lines.append(Line(f"{row.name}_ensemble", (jobs[-1].name,), facts))
    return Table(
        "table2",
        "The Transformer and the systems of the paper's Table 2 on the same data, with the same search. BLEU is "
        "measured on the test set. The cost of an ensemble is the total cost of its members. GNMT + RL continues the "
        "training of GNMT. GNMT, continued, has as many further updates that maximise the likelihood, at the same "
        f"rate. Both include the cost of GNMT. {recipe.caption()}",
        tuple(jobs),
        tuple(lines),
        _COLUMNS,
        BLEU,
    )
