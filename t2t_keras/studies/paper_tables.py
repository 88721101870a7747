"""The tables, by their `--table` names."""

from collections.abc import Callable

from t2t_keras.studies import attention_table, equal_cost, recipes, table1, table2, table3, table4
from t2t_keras.studies.data_facts import DataFacts
from t2t_keras.studies.study_settings import StudySettings
from t2t_keras.studies.table import Table

# To add a table, add its function here, which creates the table from a study's settings and data.
TABLES: dict[str, Callable[[StudySettings, DataFacts], Table]] = {
    "1": table1.make_table,
    "2": table2.make_table,
    "2_equal_cost": equal_cost.make_table,
    "3": table3.make_table,
    "4": table4.make_table,
    "attention": attention_table.make_table,
    "recipes": recipes.make_table,
}
