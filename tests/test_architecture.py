"""The architecture of the package: imports run in one direction, and files and functions are short."""

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

# The parts of the package from the ground up, and the parts that each may import. A part is the first name below
# t2t_keras.
GROUND = {"collector", "errors", "export_contract", "language_names", "symbols", "tensor", "values"}
ABOVE_THE_LINE = {  # Keras and NumPy only, on any backend
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
# Contains the public names.
PUBLIC = {"__init__"}


def module_name(path: pathlib.Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def part(module: str) -> str:
    names = module.split(".")
    return names[1] if len(names) > 1 else "__init__"


@functools.cache
def imports(path: pathlib.Path) -> tuple[tuple[str, bool], ...]:
    """The modules that a file imports, with relative imports resolved, and whether importing the file imports them."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {node for function in ast.walk(tree) if _is_function(function) for node in ast.walk(function)}
    inside |= {node for block in ast.walk(tree) if _is_type_checking(block) for node in ast.walk(block)}
    package = module_name(path) if path.name == "__init__.py" else module_name(path).rpartition(".")[0]
    modules = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [(alias.name, node not in inside) for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, base]).removesuffix(".")
            # "from package import module" and "from module import name" look the same, so both names are recorded.
            modules += [(f"{base}.{alias.name}", node not in inside) for alias in node.names]
    return tuple(modules)


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def parts_imported(path: pathlib.Path) -> list[tuple[str, bool]]:
    return [(part(module), eager) for module, eager in imports(path) if is_within(module, "t2t_keras")]


def check_all(paths: list[pathlib.Path]) -> Callable[[Callable[[pathlib.Path], None]], Callable[[], None]]:
    """Checks all files in one test, because thousands of tests would take longer than their checks."""

    def make_test(check: Callable[[pathlib.Path], None]) -> Callable[[], None]:
        def test() -> None:
            wrong = []
            for path in paths:
                try:
                    check(path)
                except AssertionError as error:
                    wrong.append(f"{module_name(path)}: {error}")
            assert paths and not wrong, "\n".join(wrong)

        # Without __wrapped__, which would make pytest look for a fixture `path`.
        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return make_test


check_all_files, check_all_modules = check_all(FILES), check_all(PACKAGE)
NO_TENSORFLOW = [
    path for path in PACKAGE if part(module_name(path)) in ABOVE_THE_LINE and module_name(path) != TENSORFLOW_KERNELS
]
INTERNAL = [path for path in PACKAGE if part(module_name(path)) not in PUBLIC]


@check_all(NO_TENSORFLOW)
def test_keras_parts_do_not_import_tensorflow(path):
    below = [module for module, _ in imports(path) if re.match(r"tensorflow|tf_keras|tf\b", module)]
    assert not below


def test_importing_the_tokenizer_does_not_import_tensorflow():
    paths, visited, to_read = {module_name(path): path for path in PACKAGE}, set(), {"t2t_keras.text.tokenizer"}
    while to_read:
        visited.add(name := to_read.pop())
        eager = {module for module, eager in imports(paths[name]) if eager}
        assert not [module for module in eager if is_within(module, "tensorflow")], name
        to_read |= ({*eager, *(module.rpartition(".")[0] for module in eager)} & paths.keys()) - visited
    assert len(visited) > 3


@check_all_files
def test_no_private_modules_of_keras_are_imported(path):
    inside = ("keras.src", "tensorflow.python", "tensorflow.keras", "tf_keras")
    # Stopping a call has no public name; tests/serving/test_cancelling.py fails if this one disappears.
    allowed = ["tensorflow.python.eager.cancellation"] if path.name == "cancelling.py" else []
    private = [module for module, _ in imports(path) if any(is_within(module, name) for name in inside)]
    assert private == allowed
    assert not re.search(r"\bkeras\.src\b|\btf\.keras\b", path.read_text(encoding="utf-8"))


@check_all_modules
def test_the_package_imports_neither_flags_nor_programs(path):
    assert not [module for module, _ in imports(path) if is_within(module, "absl") or is_within(module, "launch")]


@check_all(INTERNAL)
def test_imports_are_permitted(path):
    of = part(module_name(path))
    for imported, _ in parts_imported(path):
        assert imported in MAY_IMPORT[of] | {of}, f"{module_name(path)} imports t2t_keras.{imported}"


def test_imports_have_no_cycles():
    """Checks the rules of parts, and the imports of modules."""
    graphlib.TopologicalSorter(MAY_IMPORT).prepare()  # raises a CycleError that names the cycle
    names = set(map(module_name, FILES))
    imported = {}
    for path in FILES:
        modules = {module if module in names else module.rpartition(".")[0] for module, eager in imports(path) if eager}
        imported[module_name(path)] = modules & names - {module_name(path)}
    graphlib.TopologicalSorter(imported).prepare()


@check_all([path for path in PACKAGE if part(module_name(path)) == "search"])
def test_searches_import_only_the_contract_of_models(path):
    models = {module for module, _ in imports(path) if is_within(module, "t2t_keras.models")}
    assert all(is_within(module, "t2t_keras.models.contract") for module in models)


FAMILIES = {
    module_name(path)
    for path in PACKAGE
    for folder in (path.parent, ROOT / "t2t_keras" / "config")
    if part(module_name(path)) in ("models", "baselines") and (folder / f"{path.stem}_config.py").is_file()
}


@check_all(FILES)
def test_families_are_imported_only_by_their_packages(path):
    """Adding a family changes only the registries and the public names."""
    assert {"t2t_keras.baselines.recurrent.rnn_attention", "t2t_keras.models.transformer"} <= FAMILIES
    modules = {module for module, _ in imports(path) for name in FAMILIES if is_within(module, name)}
    assert not modules or part(module_name(path)) in {"models", "baselines", *PUBLIC}


def test_only_studies_import_baselines():
    """Families and presets are registered as strings, and other parts do not need the baselines."""
    assert {room for room, others in MAY_IMPORT.items() if "baselines" in others} == {"studies"}


def tracked_text() -> list[pathlib.Path]:
    """The text files of the project, without files that builds, runs and editors create."""
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


def test_files_contain_no_paths_of_one_machine():
    one_machine = re.compile(r"(?<![\w.])(/work/|/home/\w|/Users/\w|/root/|/tmp/scratch|\.\./shared)|[A-Z]:\\Users")
    files = tracked_text()
    assert pathlib.Path(__file__) in files
    this_pattern = "one_machine = re.compile"
    places = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if one_machine.search(line) and this_pattern not in line
    ]
    assert not places


MAX_LINES, MAX_FUNCTION_LINES, MAX_ARGUMENTS = 700, 60, 7


@check_all_files
def test_files_and_functions_are_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MAX_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            place = f"{path.name}:{node.lineno} {node.name}"
            assert node.end_lineno - node.lineno < MAX_FUNCTION_LINES, place
            arguments = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
            is_of_a_layer = node.name in ("__init__", "call") and part(module_name(path)) in ("layers", "baselines")
            assert is_of_a_layer or len([name for name in arguments if name not in ("self", "cls")]) <= MAX_ARGUMENTS, (
                place
            )


def test_file_names_are_unique_and_meaningful():
    names = [path.stem for path in PACKAGE if path.stem != "__init__"]
    assert {name for name in names if names.count(name) > 1} == set()
    assert not {"utils", "util", "common", "helpers", "misc"} & {*names, *(path.parent.name for path in PACKAGE)}
