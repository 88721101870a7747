"""The floors of the house: imports run one way, and only where they may."""

import ast
import functools
import graphlib
import pathlib
import re
from collections.abc import Callable

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = sorted((ROOT / "t2t_keras").rglob("*.py"))
PROGRAMS = sorted((ROOT / "launch").rglob("*.py"))
FILES = PACKAGE + PROGRAMS

TENSORFLOW_KERNELS = "t2t_keras.kernels.tensorflow"

# The rooms from the ground up, and what each may import besides itself; a room is the first name below t2t_keras.
GROUND = {"collector", "errors", "export_contract", "language_names", "symbols", "tensor", "values"}
ABOVE_THE_LINE = {  # Keras and NumPy alone, on any backend
    "collector": set(),
    "errors": set(),
    "export_contract": set(),
    "language_names": set(),
    "symbols": set(),
    "tensor": set(),
    "values": {"errors"},
    "config": GROUND,
    "losses": GROUND,
    "schedules": GROUND,
    "kernels": GROUND,
    "layers": GROUND | {"config", "kernels"},
    "models": GROUND | {"config", "kernels", "layers"},
    "baselines": GROUND | {"config", "kernels", "layers", "models"},
    "planning": GROUND | {"config"},
}
BELOW_THE_LINE = {
    "machine": GROUND,
    "text": GROUND | {"machine"},
    "localization": GROUND | {"text"},
    "data": GROUND | {"config", "machine", "tasks", "text"},
    "runs": GROUND | {"config", "machine", "models", "text"},
    "search": GROUND | {"config", "kernels", "models"},
    "formats": GROUND | {"config", "layers", "machine", "models", "text"},
    "tasks": GROUND | {"search", "text"},
    "inference": GROUND | {"config", "formats", "machine", "models", "runs", "search", "tasks", "text"},
    "pictures": GROUND | {"machine", "tasks", "text"},
    "distillation": GROUND | {"data", "inference", "machine", "tasks", "text"},
    "evaluation": GROUND | {"inference", "machine", "search", "tasks", "text"},
    "training": GROUND
    | {
        *("config", "data", "evaluation", "inference", "layers", "losses", "machine", "models", "pictures", "runs"),
        *("schedules", "search", "tasks", "text"),
    },
    "studies": GROUND
    | {
        *("baselines", "config", "data", "evaluation", "inference", "layers", "machine", "models", "pictures"),
        *("planning", "runs", "tasks", "text", "training"),
    },
    "export": GROUND | {"config", "inference", "kernels", "machine", "models", "runs", "search", "tasks", "text"},
    "fitting": GROUND
    | {
        *("config", "data", "evaluation", "export", "inference", "machine", "models", "planning", "runs", "tasks"),
        *("text", "training"),
    },
    "acceptance": GROUND | {"config", "data", "inference", "machine", "runs", "studies"},
    "serving": GROUND | {"machine"},
}
MAY_IMPORT = ABOVE_THE_LINE | BELOW_THE_LINE
# Offers the names a user needs.
FREE = {"__init__"}


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


def every(paths: list[pathlib.Path]) -> Callable[[Callable[[pathlib.Path], None]], Callable[[], None]]:
    """Makes one test of what is checked of each file: thousands of tests would take longer than what they check."""

    def of_all(check: Callable[[pathlib.Path], None]) -> Callable[[], None]:
        def test() -> None:
            wrong = []
            for path in paths:
                try:
                    check(path)
                except AssertionError as error:
                    wrong.append(f"{module_name(path)}: {error}")
            assert paths and not wrong, "\n".join(wrong)

        # Not __wrapped__, by which pytest would look for a fixture `path`.
        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return of_all


every_file, every_module = every(FILES), every(PACKAGE)
NO_TENSORFLOW = [
    path for path in PACKAGE if part(module_name(path)) in ABOVE_THE_LINE and module_name(path) != TENSORFLOW_KERNELS
]
NOT_FREE = [path for path in PACKAGE if part(module_name(path)) not in FREE]


@every(NO_TENSORFLOW)
def test_tensorflow_stays_below_the_line(path):
    below = [module for module, _ in imports(path) if re.match(r"tensorflow|tf_keras|tf\b", module)]
    assert not below


def test_the_tokenizer_is_imported_without_tensorflow():
    """With all of the package that it imports."""
    paths, found, to_read = {module_name(path): path for path in PACKAGE}, set(), {"t2t_keras.text.tokenizer"}
    while to_read:
        found.add(name := to_read.pop())
        eager = {module for module, eager in imports(paths[name]) if eager}
        assert not [module for module in eager if is_of(module, "tensorflow")], name
        to_read |= ({*eager, *(module.rpartition(".")[0] for module in eager)} & paths.keys()) - found
    assert len(found) > 3


@every_file
def test_nothing_imports_the_inside_of_keras(path):
    inside = ("keras.src", "tensorflow.python", "tensorflow.keras", "tf_keras")
    # Stopping a call has no public name; tests/serving/test_cancelling.py tells if this one goes.
    allowed = ["tensorflow.python.eager.cancellation"] if path.name == "cancelling.py" else []
    found = [module for module, _ in imports(path) if any(is_of(module, name) for name in inside)]
    assert found == allowed
    assert not re.search(r"\bkeras\.src\b|\btf\.keras\b", path.read_text(encoding="utf-8"))


@every_module
def test_only_programs_know_of_flags_and_nothing_imports_a_program(path):
    assert not [module for module, _ in imports(path) if is_of(module, "absl") or is_of(module, "launch")]


@every(NOT_FREE)
def test_imports_run_one_way(path):
    of = part(module_name(path))
    for imported, _ in parts_imported(path):
        assert imported in MAY_IMPORT[of] | {of}, f"{module_name(path)} imports t2t_keras.{imported}"


def test_nothing_imports_in_a_circle():
    """Neither rooms nor modules, as far as these import each other when they are imported."""
    graphlib.TopologicalSorter(MAY_IMPORT).prepare()  # raises a CycleError that names the circle
    names = set(map(module_name, FILES))
    imported = {}
    for path in FILES:
        modules = {module if module in names else module.rpartition(".")[0] for module, eager in imports(path) if eager}
        imported[module_name(path)] = modules & names - {module_name(path)}
    graphlib.TopologicalSorter(imported).prepare()


@every([path for path in PACKAGE if part(module_name(path)) == "search"])
def test_searches_know_of_models_their_contract_alone(path):
    models = {module for module, _ in imports(path) if is_of(module, "t2t_keras.models")}
    assert all(is_of(module, "t2t_keras.models.contract") for module in models)


FAMILIES = {
    module_name(path)
    for path in PACKAGE
    for folder in (path.parent, ROOT / "t2t_keras" / "config")
    if part(module_name(path)) in ("models", "baselines") and (folder / f"{path.stem}_config.py").is_file()
}


@every(FILES)
def test_no_family_is_named_but_where_they_are_registered(path):
    """Whoever adds one changes nothing else; the package offers the Transformer's name to its users."""
    assert {"t2t_keras.baselines.recurrent.rnn_attention", "t2t_keras.models.transformer"} <= FAMILIES
    modules = {module for module, _ in imports(path) for name in FAMILIES if is_of(module, name)}
    assert not modules or part(module_name(path)) in {"models", "baselines", *FREE}


def test_nothing_but_the_tables_that_compare_imports_what_the_paper_is_compared_with():
    """Families and presets are found by strings, and no part of the paper needs those of others."""
    assert {room for room, others in MAY_IMPORT.items() if "baselines" in others} == {"studies"}


def tracked_text() -> list[pathlib.Path]:
    """The project's own text: not what building, running or an editor leaves beside it."""
    folders = ("t2t_keras", "launch", "tests", "benchmarks", "docs", ".ci", ".github")
    kinds = {".py", ".md", ".toml", ".sh", ".yaml", ".yml", ".txt", ".cfg", ""}
    within = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if not {"__pycache__", "_build"} & {*path.parts}
    ]
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


MOST_LINES, MOST_LINES_OF_A_FUNCTION, MOST_ARGUMENTS = 700, 60, 7


@every_file
def test_files_and_functions_are_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MOST_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            place = f"{path.name}:{node.lineno} {node.name}"
            assert node.end_lineno - node.lineno < MOST_LINES_OF_A_FUNCTION, place
            taken = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            is_layers = node.name in ("__init__", "call") and part(module_name(path)) in ("layers", "baselines")
            assert is_layers or len([name for name in taken if name not in ("self", "cls")]) <= MOST_ARGUMENTS, place


def test_no_two_files_of_one_name_and_none_that_says_nothing():
    names = [path.stem for path in PACKAGE if path.stem != "__init__"]
    assert {name for name in names if names.count(name) > 1} == set()
    assert not {"utils", "util", "common", "helpers", "misc"} & {*names, *(path.parent.name for path in PACKAGE)}
