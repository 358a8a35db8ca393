"""The documents say what the program does: every setting, signal, detector, command and link."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def headings(name: str) -> set[str]:
    """All headings of a document, without their hashes."""
    return set(re.findall(r"^#+ (.+?)\s*$", read(name), flags=re.MULTILINE))


def committed_files() -> list[Path]:
    """Text files under version control that exist."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_each_setting_has_a_heading() -> None:
    from monitor.settings import Settings

    wanted = {f"WATCHKEEPER_{name.upper()}" for name in Settings.model_fields}
    assert wanted <= headings("docs/operations.md")


def test_each_variable_of_the_client_has_a_heading() -> None:
    sources = (ROOT / "trainer_hooks").rglob("*.py")
    named = {
        name
        for path in sources
        for name in re.findall(r"\bWATCHKEEPER_[A-Z_]+\b", path.read_text(encoding="utf-8"))
    }
    assert named
    assert named <= headings("docs/operations.md")


def test_each_signal_family_has_a_heading() -> None:
    families = {
        family
        for path in (ROOT / "trainer_hooks").rglob("*.py")
        for family in re.findall(r'family="(\w+)"', path.read_text(encoding="utf-8"))
    }
    assert families
    assert families <= headings("docs/signals.md")


def test_each_detector_has_a_page() -> None:
    from monitor.detectors import DETECTORS

    pages = {path.stem for path in (ROOT / "docs/detectors").glob("*.md")}
    assert DETECTORS
    assert set(DETECTORS) == pages - {"README"}


def test_each_command_is_named() -> None:
    from monitor.cli import COMMANDS

    words = set(re.findall(r"[a-z]+", read("README.md")))
    assert set(COMMANDS) <= words


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link and not link.startswith("/")]
    assert not [link for link in local if not (path.parent / link).exists()]


def test_each_decision_says_how_it_is_enforced() -> None:
    records = sorted((ROOT / "docs/decisions").glob("0*.md"))
    assert [path.name[:4] for path in records] == [f"{n:04d}" for n in range(1, len(records) + 1)]
    for path in records:
        text = path.read_text(encoding="utf-8")
        for part in ("**Context.**", "**Decision.**", "**Consequences.**", "**Enforced by.**"):
            assert part in text, path.name


MACHINE_PATH = re.compile(r"(?<![\w.])/(?:work|root|home)/\w|file:///(?!etc/passwd)")
SET_UP = (
    "Makefile",
    "Dockerfile",
    "docker-compose.yml",
    "pyproject.toml",
    "constraints.txt",
    ".pre-commit-config.yaml",
    ".ci",
)


def test_no_committed_file_names_a_path_of_somebodys_machine() -> None:
    found = []
    for path in committed_files():
        if path == Path(__file__).resolve() or path.suffix in {".png", ".gz", ".zst"}:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        found += [f"{path.relative_to(ROOT)}: {m.group()}" for m in MACHINE_PATH.finditer(text)]
    assert not found


def test_what_sets_up_names_no_host_to_fetch_from() -> None:
    for path in committed_files():
        if str(path.relative_to(ROOT)).startswith(SET_UP):
            hosts = re.findall(r"https?://([^/\s\"']+)", path.read_text(encoding="utf-8"))
            assert all(host.startswith("127.0.0.1") for host in hosts), path


def test_constraints_are_plain_pins() -> None:
    lines = read("constraints.txt").splitlines()
    assert lines
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line) for line in lines)


def test_make_help_lists_the_promised_commands() -> None:
    words = ["make", "--no-print-directory", "help"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    promised = "setup demo serve check fix test test-all bench golden docs gpu-check".split()
    assert [line.split()[1] for line in done.stdout.splitlines()[1:]] == promised
