"""Only ``lsr_prod.storage`` creates, renames and deletes files, except for the modules listed here with a reason."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "lsr_prod"
SCRATCH = "scratch in a temporary folder or a draft"
ALLOWED = {
    "cluster/session.py": "the folder in which a local Ray keeps its files",
    "cluster/address.py": "the token of a local Ray, in the folder from which Ray reads it",
    "model/export/bundle.py": "transformers writes to a folder, in a draft",
    "model/export/graph.py": "onnx and the quantizer write to a path, in a draft",
    "indexing/impacts/vectors.py": "memory-mapped arrays, in a draft",
    "indexing/impacts/postings.py": SCRATCH,
    "indexing/boolean.py": "Tantivy writes to a folder, in a draft",
    "indexing/in_memory.py": "pyarrow writes to a path, in a temporary folder",
    "indexing/base_shard.py": "pyarrow writes to a path, in a draft",
    "lsr_prod_contrib/vectors/inversion.py": SCRATCH,
    "lsr_prod_contrib/vectors/npz.py": SCRATCH,
    "lsr_prod_contrib/vectors/spill.py": SCRATCH,
    "model/directory.py": "transformers and tokenizers write to a path, in a draft",
    "model/output_layer.py": "safetensors writes to a path, in a draft",
    "lsr_prod_contrib/doctor/machine.py": "tries whether a folder of the user can be written",
    "lsr_prod_contrib/doctor/stores.py": "removes the folder in which it tried a store",
    "serving/closed_haproxy.py": "removes the folder of HAProxy",
    "serving/haproxy.py": "the folder in which Ray's HAProxy keeps its configuration and its sockets",
    "training/loop/checkpoint.py": "safetensors writes to a path, in a temporary folder from which Ray uploads",
    "training/loop/worker.py": SCRATCH,
    "training/data/known_positives.py": SCRATCH,
    "training/data/parts.py": SCRATCH,
}
PATH_METHODS = {
    "chmod",
    "hardlink_to",
    "mkdir",
    "rename",
    "rmdir",
    "save_pretrained",
    "symlink_to",
    "unlink",
    "write_bytes",
    "write_text",
}
FUNCTIONS = {
    "np.lib.format.open_memmap",
    "np.memmap",
    "np.savez",
    "np.savez_compressed",
    "onnx.save_model",
    "os.link",
    "os.makedirs",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.replace",
    "os.symlink",
    "os.unlink",
    "pa.OSFile",
    "save_file",
    "shutil.copy",
    "shutil.copyfile",
    "shutil.copytree",
    "shutil.move",
    "shutil.rmtree",
    "tantivy.Index",
    "torch.save",
}
WRITERS_OF_BUFFERS = {"np.save", "pa.ipc.new_file", "pq.write_table", "json.dump"}


def writes(source: str) -> list[tuple[int, str]]:
    """Line and text of every call that writes to a path."""
    return [
        (node.lineno, ast.unparse(node.func))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and _writes(node)
    ]


def _writes(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    if name in FUNCTIONS:
        return True
    if name in WRITERS_OF_BUFFERS:  # a plain variable is a buffer; a path is built where it is used
        return any(not isinstance(argument, ast.Name | ast.Constant) and _is_path(argument) for argument in call.args)
    if name == "open" or (isinstance(call.func, ast.Attribute) and call.func.attr == "open"):
        modes = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
        return any(_is_write_mode(mode) for mode in modes)
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr == "replace":  # Path.replace has one argument, str.replace two
        return len(call.args) == 1 and not call.keywords
    if call.func.attr == "touch":  # Path.touch has no argument, Store.touch has the name
        return not call.args
    return call.func.attr in PATH_METHODS


def _is_path(argument: ast.expr) -> bool:
    return isinstance(argument, ast.BinOp) or (isinstance(argument, ast.Call) and ast.unparse(argument.func) == "str")


def _is_write_mode(mode: ast.expr) -> bool:
    value = mode.value if isinstance(mode, ast.Constant) else None
    if not isinstance(value, str) or not 0 < len(value) <= 3:
        return False
    return set(value) <= set("rwaxbt+") and bool(set(value) & set("wax+"))


def test_only_storage_and_listed_modules_write_files() -> None:
    found = {}
    for path in sorted(ROOT.glob("lsr_prod*/**/*.py")):
        module = path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else ROOT).as_posix()
        if not module.startswith("storage/") and (calls := writes(path.read_text(encoding="utf-8"))):
            found[module] = calls
    assert {module: calls for module, calls in found.items() if module not in ALLOWED} == {}
    assert ALLOWED.keys() - found.keys() == set()  # an exception without a write is removed from the list


@pytest.mark.parametrize(
    "planted",
    [
        'open(path, "w")',
        'path.open("xb")',
        'path.open(mode="a")',
        "path.write_text(text)",
        "path.mkdir()",
        "path.touch()",
        "draft.rename(path)",
        "draft.replace(path)",
        "os.replace(draft, path)",
        "shutil.copytree(source, target)",
        'np.save(folder / "a.npy", array)',
        "pq.write_table(table, str(path))",
        'pa.OSFile(str(path), "wb")',
    ],
)
def test_planted_write_is_found(planted: str) -> None:
    assert len(writes(f"def work(path, draft):\n    {planted}\n")) == 1


@pytest.mark.parametrize(
    "harmless",
    [
        'path.open("rb")',
        "path.open()",
        'text.replace("a", "b")',
        "replace(card, casing=None)",
        "pq.write_table(table, buffer)",
        'archive.open(entry, "r")',
        "path.read_bytes()",
        "store.touch(name)",
    ],
)
def test_read_is_not_reported(harmless: str) -> None:
    assert writes(harmless) == []
