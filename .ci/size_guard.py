"""Hold files and functions to a size a reader can keep in the head: 600 and 80 lines.

Usage: ``python .ci/size_guard.py [FOLDER]``; exit status 1 if anything is larger.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LINES = 600
FUNCTION_LINES = 80
SUFFIXES = {".py", ".js", ".css", ".html"}


def source_files(root: Path) -> list[Path]:
    """Files under version control or about to be; all files, where there is no repository."""
    listing = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0:
        found = [root / name for name in listing.stdout.split("\0") if name]
    else:
        hidden = {".venv", "node_modules", ".git"}
        found = [p for p in root.rglob("*") if not hidden & set(p.relative_to(root).parts)]
    return sorted(p for p in set(found) if p.suffix in SUFFIXES and p.is_file())


def long_functions(path: Path, text: str) -> Iterator[str]:
    """Functions of a Python file above the limit, decorators and docstring included."""
    for node in ast.walk(ast.parse(text, str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {node.name} has {lines} lines (most {FUNCTION_LINES})"


def violations(root: Path) -> Iterator[str]:
    """One line for everything that is too large."""
    for path in source_files(root):
        text = path.read_text(encoding="utf-8")
        lines = text.count("\n")
        if lines > FILE_LINES:
            yield f"{path}: {lines} lines (most {FILE_LINES})"
        if path.suffix == ".py":
            yield from long_functions(path, text)


def main() -> int:
    """Print what is too large."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()
    found = list(violations(root))
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
