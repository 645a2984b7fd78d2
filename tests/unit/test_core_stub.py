"""`_core.pyi` is the module: the stub that pybind11-stubgen makes of it has the same names, and
each function the same parameters.

Types are not compared: ours are narrower than what the bindings can tell. What only a build with
CUDA has cannot be seen here in a build without it, so names of ours that the module lacks count
only there.
"""

import ast
from pathlib import Path

import pytest

import ftax
from ftax import _build_info

stubgen = pytest.importorskip("pybind11_stubgen")

Names = dict[str, tuple[str, ...] | None]  # of a function: its parameters


def is_property(node: ast.FunctionDef) -> bool:
    names = [ast.unparse(decorator) for decorator in node.decorator_list]
    return any(name == "property" or name.endswith(".setter") for name in names)


def list_names(body: list[ast.stmt], prefix: str = "") -> Names:
    found: Names = {}
    for node in body:
        if isinstance(node, ast.ClassDef):
            found[prefix + node.name] = None
            found |= list_names(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and is_property(node):
            found[prefix + node.name] = None
        elif isinstance(node, ast.FunctionDef):
            arguments = node.args
            names = [item.arg for item in (*arguments.posonlyargs, *arguments.args)]
            names += [item.arg for item in arguments.kwonlyargs]
            found[prefix + node.name] = tuple(name for name in names if name != "self")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[prefix + node.target.id] = None
        elif isinstance(node, ast.Assign):
            found |= {prefix + t.id: None for t in node.targets if isinstance(t, ast.Name)}
    enums = {name[: -len(".__members__")] for name in found if name.endswith(".__members__")}
    return {
        name: what
        for name, what in found.items()
        if not (last := name.rpartition(".")[2]).startswith("_") or last == "__init__"
        if not (name.rpartition(".")[0] in enums and last in ("__init__", "name", "value"))
    }


def read(path: Path) -> Names:
    return list_names(ast.parse(path.read_text(encoding="utf-8")).body)


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> tuple[Names, Names]:
    folder = tmp_path_factory.mktemp("stubs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "sys.argv",
            ["pybind11-stubgen", "ftax._core", "-o", str(folder), "--ignore-all-errors"],
        )
        stubgen.main()
    (made,) = folder.glob("ftax/_core*")
    made = made / "__init__.pyi" if made.is_dir() else made
    return read(made), read(Path(ftax.__file__).with_name("_core.pyi"))


def fits(made: tuple[str, ...] | None, ours: tuple[str, ...] | None) -> bool:
    """A parameter that the bindings do not name is called arg0, and goes by its place."""
    if made is None or ours is None:
        return made is ours
    pairs = zip(made, ours, strict=False)
    return len(made) == len(ours) and all(a == b or a.startswith("arg") for a, b in pairs)


def test_all_that_the_module_has_is_in_the_stub_with_its_parameters(names):
    module, ours = names
    assert len(module) > 200
    differ = {
        name: (made, ours.get(name, "not there"))
        for name, made in module.items()
        if name not in ours or not fits(made, ours[name])
    }
    assert differ == {}


def test_the_stub_promises_nothing_that_the_module_lacks(names):
    module, ours = names
    lacking = ours.keys() - module.keys()
    if _build_info.WITH_CUDA:
        assert lacking == set()
    else:
        assert {name for name in lacking if name.partition(".")[0] in module} == set()
