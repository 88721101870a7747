"""The floors of the house: imports run one way, and only where they may."""

import ast
import functools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = sorted((ROOT / "t2t_keras").rglob("*.py"))
PROGRAMS = sorted((ROOT / "launch").rglob("*.py"))
FILES = PACKAGE + PROGRAMS

# Above the seam: Keras and NumPy alone, on any backend.
ABOVE_THE_SEAM = (
    "layers",
    "model",
    "models",
    "losses",
    "schedules",
    "config",
    "symbols",
    "presets",
    "errors",
    "describe",
    "forecast",
)
TENSORFLOW_KERNELS = "t2t_keras.layers.kernels.tensorflow"

# What each part of the package may import besides itself. A part is the first name below t2t_keras.
GROUND = {"errors", "symbols", "streams", "processes", "locking", "notices"}
CONFIG = GROUND | {"config"}
DATA = CONFIG | {"data"}
MODEL = CONFIG | {"presets", "layers", "model", "models"}
DECODING = DATA | {"run", "models"}
EVALUATION = DECODING | {"decoding"}
TRAINING = EVALUATION | MODEL | {"losses", "schedules", "evaluation"}
MAY_IMPORT = {
    "errors": set(),
    "streams": set(),
    "processes": {"errors"},
    "locking": {"errors"},
    "notices": set(),
    "symbols": set(),
    "config": GROUND,
    "layers": CONFIG,
    "losses": CONFIG,
    "schedules": CONFIG,
    "presets": CONFIG,
    "describe": CONFIG,
    "forecast": CONFIG | {"describe"},
    "data": CONFIG,
    "run": CONFIG,
    "model": CONFIG | {"presets", "layers", "models"},
    "models": CONFIG,
    "decoding": DECODING,
    "evaluation": EVALUATION,
    "export": EVALUATION | MODEL,
    "serving": GROUND,
    "training": TRAINING,
}
# A program may import everything; the names a user needs may be offered by the package itself.
FREE = {"__init__"}
# Imported inside a function, where loading a run needs them: path of the importer -> parts.
LAZY = {"t2t_keras.run": {"models", "training"}}
# What computes the model's layers in its own way knows them.
KNOWS_LAYERS = "t2t_keras.decoding.lite"


def module_name(path: pathlib.Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def part(module: str) -> str:
    names = module.split(".")
    return names[1] if len(names) > 1 else "__init__"


@functools.cache
def imports(path: pathlib.Path) -> tuple[tuple[str, bool], ...]:
    """Every module that a file imports, relative ones resolved, and whether the file does so when it is imported."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {node for function in ast.walk(tree) if _is_function(function) for node in ast.walk(function)}
    inside |= {node for block in ast.walk(tree) if _is_type_checking(block) for node in ast.walk(block)}
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node not in inside) for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]).removesuffix(".")
            # "from package import module" and "from module import name" look the same: both are recorded.
            found += [(f"{base}.{alias.name}", node not in inside) for alias in node.names]
    return tuple(found)


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def is_of(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def parts_imported(path: pathlib.Path) -> list[tuple[str, bool]]:
    return [(part(module), eager) for module, eager in imports(path) if is_of(module, "t2t_keras")]


def every(paths: list[pathlib.Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=map(module_name, paths))


every_file, every_module = every(FILES), every(PACKAGE)
NO_TENSORFLOW = [
    path for path in PACKAGE if part(module_name(path)) in ABOVE_THE_SEAM and module_name(path) != TENSORFLOW_KERNELS
]
NOT_FREE = [path for path in PACKAGE if part(module_name(path)) not in FREE]


def test_the_reader_of_imports_reads(tmp_path):
    """Of known code, so that the tests below cannot pass by seeing nothing."""
    parts = {part(module_name(path)) for path in PACKAGE}
    assert {"config", "layers", "model", "data", "decoding", "training", "run"} <= parts
    model = dict(imports(ROOT / "t2t_keras" / "model.py"))
    assert model["keras"]
    assert model["t2t_keras.presets"]
    run = dict(imports(ROOT / "t2t_keras" / "run.py"))
    assert run["t2t_keras.config.Config"]
    assert not run["t2t_keras.models.families.make_model"]
    assert dict(imports(ROOT / "launch" / "train.py"))["launch.program"]
    assert any(is_of(module, "tensorflow") for module, _ in imports(ROOT / "t2t_keras" / "training" / "step.py"))


def test_the_lists_of_files_name_all_there_is():
    """Every part above the seam has a file, and only the package itself and one kernel's file are left out."""
    assert {part(module_name(path)) for path in NO_TENSORFLOW} == set(ABOVE_THE_SEAM)
    assert {module_name(path) for path in PACKAGE if path not in NOT_FREE} == {"t2t_keras"}
    left_out = {module_name(path) for path in PACKAGE if part(module_name(path)) in ABOVE_THE_SEAM}
    assert left_out - set(map(module_name, NO_TENSORFLOW)) == {TENSORFLOW_KERNELS}


@every(NO_TENSORFLOW)
def test_tensorflow_stays_below_the_seam(path):
    below = [module for module, _ in imports(path) if re.match(r"tensorflow|tf_keras|tf\b", module)]
    assert not below


@every_file
def test_nothing_imports_the_inside_of_keras(path):
    inside = ("keras.src", "tensorflow.python", "tensorflow.keras", "tf_keras")
    assert not [module for module, _ in imports(path) if any(is_of(module, name) for name in inside)]
    assert not re.search(r"\bkeras\.src\b|\btf\.keras\b", path.read_text(encoding="utf-8"))


@every_module
def test_only_programs_know_of_flags_and_nothing_imports_a_program(path):
    assert not [module for module, _ in imports(path) if is_of(module, "absl") or is_of(module, "launch")]


@every(NOT_FREE)
def test_imports_run_one_way(path):
    name = module_name(path)
    of = part(name)
    assert of in MAY_IMPORT, f"{name}: say in this test what this part may import"
    for imported, eager in parts_imported(path):
        allowed = MAY_IMPORT[of] | {of} | (set() if eager else LAZY.get(name, set()))
        allowed |= MODEL if is_of(name, KNOWS_LAYERS) else set()
        assert imported in allowed, f"{name} imports t2t_keras.{imported}"


def test_the_floors_have_no_circle():
    """Each part's floor is above those of all it may import."""
    floors: dict[str, int] = {}

    def floor(name: str, above: tuple[str, ...] = ()) -> int:
        assert name not in above, f"a circle: {' <- '.join([*above, name])}"
        if name not in floors:
            floors[name] = 1 + max((floor(other, (*above, name)) for other in MAY_IMPORT[name] - {name}), default=0)
        return floors[name]

    assert floor("training") > floor("evaluation") > floor("decoding") > floor("data") > floor("config")
    for name in MAY_IMPORT:
        floor(name)


def test_modules_have_no_circle():
    """Within a part too, as far as modules import each other when they are imported."""
    names = {module_name(path): path for path in FILES}

    def imported(name: str) -> set[str]:
        found = set()
        for module, eager in imports(names[name]):
            known = module if module in names else module.rpartition(".")[0]
            if eager and known in names and known != name:
                found.add(known)
        return found

    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> None:
        assert name not in above, f"a circle: {' <- '.join([*above, name])}"
        if name not in done:
            for other in imported(name):
                visit(other, (*above, name))
            done.add(name)

    for name in names:
        visit(name, ())
    assert done == set(names)


@pytest.mark.parametrize(
    "name", ["beam_search", "greedy", "sampling", "searches", "ensemble", "state", "scoring", "top_k"]
)
def test_the_search_knows_of_models_their_contract_alone(name):
    path = ROOT / "t2t_keras" / "decoding" / f"{name}.py"
    assert {imported for imported, _ in parts_imported(path)} <= {"config", "errors", "symbols", "decoding", "models"}
    models = {module for module, _ in imports(path) if is_of(module, "t2t_keras.models")}
    assert all(is_of(module, "t2t_keras.models.contract") for module in models)


def test_the_loss_and_the_schedule_import_nothing_above_the_configuration():
    for name in ("losses", "schedules"):
        assert {imported for imported, _ in parts_imported(ROOT / "t2t_keras" / f"{name}.py")} <= CONFIG


def test_data_imports_the_configuration_alone():
    for path in (ROOT / "t2t_keras" / "data").glob("*.py"):
        assert {imported for imported, _ in parts_imported(path)} <= DATA


def tracked_text() -> list[pathlib.Path]:
    """The project's own text: not what building, running or an editor leaves beside it."""
    folders = ("t2t_keras", "launch", "tests", "benchmarks", "docs", ".ci")
    kinds = {".py", ".md", ".toml", ".sh", ".yaml", ".yml", ".txt", ".cfg", ""}
    within = [path for folder in folders for path in (ROOT / folder).rglob("*") if "__pycache__" not in path.parts]
    files = [path for path in [*within, *ROOT.iterdir()] if path.is_file() and path.suffix in kinds]
    return [path for path in files if path.name not in ("LICENSE", ".git")]


def test_no_file_mentions_a_path_of_one_machine():
    one_machine = re.compile(r"(?<![\w.])(/work/|/home/\w|/Users/\w|/root/|/tmp/scratch|\.\./shared)|[A-Z]:\\Users")
    files = tracked_text()
    assert pathlib.Path(__file__) in files
    own_pattern = "one_machine = re.compile"
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if one_machine.search(line) and own_pattern not in line
    ]
    assert not found
