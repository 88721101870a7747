"""A table for `--extension` that takes seconds: rows of a small Transformer, and an ensemble."""

from t2t_keras.studies.paper_tables import TABLES
from t2t_keras.studies.rows import Recipe, Row, ensemble
from t2t_keras.studies.table import Column, Line, Table

STEPS = 6
COMMON = (
    *("model.num_encoder_layers=1", "model.num_decoder_layers=1", "model.d_model=16", "model.d_ff=32"),
    # The preset has 8,000 updates, and these trainings 6: the checkpoint is at update 3.
    *("train.tokens_per_batch=100", "train.log_steps=4", "train.steps_per_call=3", "train.checkpoint_steps=4000"),
)
ROWS = (
    Row("base", "tiny", is_repeated=True),
    Row("heads", "tiny", ("model.num_heads=2",)),
    Row("fails", "tiny", ("train.tokens_per_batch=3",)),
)
SCORE = Column("BLEU", "test_bleu", "{:.2f}".format)


def make_table(settings, data):
    """Returns the rows, and an ensemble of the first, whose cell in the column "heads" is known before training."""
    recipe = Recipe(settings, data, ROWS[0], COMMON, usual_steps=STEPS)
    jobs, lines = [], []
    for row in ROWS:
        trainings = recipe.trainings(row)
        facts = {"heads": str(trainings[0].config.model.num_heads)}
        lines.append(Line(row.name, tuple(job.name for job in trainings), facts))
        jobs += trainings
        if len(trainings) > 1:
            jobs.append(ensemble(row, trainings))
            lines.append(Line(f"{row.name}_ensemble", (jobs[-1].name,), {}))
    columns = ("heads", SCORE, Column("hours", "hours", "{:.3f}".format))
    return Table("toy", "A toy.", tuple(jobs), tuple(lines), columns, SCORE)


TABLES["toy"] = make_table
