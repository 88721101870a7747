"""Table 4 of the paper: English constituency parsing."""

from collections.abc import Mapping

from t2t_keras.studies.data_facts import DataFacts
from t2t_keras.studies.rows import PARAMETERS, Recipe, Row, in_millions
from t2t_keras.studies.study_settings import StudySettings
from t2t_keras.studies.table import Column, Line, Table

ROWS: Mapping[str, tuple[Row, ...]] = {
    "tiny": (Row("parser", "parsing_small", is_repeated=True),),
    "paper": (Row("parser", "parsing", is_repeated=True),),
}
# Results in the paper's table of parsers trained only on the Wall Street Journal section of the Penn Treebank.
_PUBLISHED = (
    ("vinyals", "Vinyals et al. (2014)", "88.3"),
    ("petrov", "Petrov et al. (2006)", "90.4"),
    ("zhu", "Zhu et al. (2013)", "90.4"),
    ("dyer", "Dyer et al. (2016)", "91.7"),
    ("transformer", "Transformer (4 layers)", "91.3"),
)
_PARSER, _WSJ = "parser", "F1 (WSJ 23), published"

_F1 = Column("F1 (test)", "test_f1", "{:.1f}".format)
_COLUMNS = (
    _PARSER,
    _WSJ,
    Column("F1 (dev)", "valid_f1", "{:.1f}".format),
    Column("precision (dev)", "valid_precision", "{:.1f}".format),
    Column("recall (dev)", "valid_recall", "{:.1f}".format),
    Column("exact (dev)", "valid_exact_match", "{:.1f}".format),
    _F1,
    Column("train steps", "updates", "{:,.0f}".format),
    Column("hours", "hours", "{:.2f}".format),
    PARAMETERS,
)


def make_table(settings: StudySettings, data: DataFacts) -> Table:
    """Returns Table 4 for a study. The beam search has the settings of the parsing task, from section 6.3 of the paper.

    Raises:
        InputError: the data are not for parsing.
    """
    data.check_task(settings.table, "parsing")
    row = ROWS[settings.scale][0]
    recipe = Recipe(settings, data, row)
    trainings = recipe.trainings(row)
    facts = {_PARSER: f"preset {row.preset}", PARAMETERS: in_millions(trainings[0].config.model)}
    lines = [Line(name, (), {_PARSER: parser, _WSJ: score}) for name, parser, score in _PUBLISHED]
    lines.append(Line(row.name, tuple(training.name for training in trainings), facts))
    return Table(
        "table4",
        "Constituency parsing, after Table 4 of the paper: F1 of labelled brackets, as EVALB counts them. The "
        "published scores are for the Wall Street Journal section of the Penn Treebank, which is not free. They are "
        f"not comparable with scores on other treebanks. {recipe.caption()}",
        trainings,
        tuple(lines),
        _COLUMNS,
        _F1,
    )
