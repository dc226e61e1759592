"""Where the software comes from: the host's own apt sources, with another suite; and machines that cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from seatrial.errors import SeatrialError
from seatrial.sandbox import packages
from seatrial.sandbox.apt import derive_sources, host_sources

STANZAS = """\
# a snapshot
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/security
Suites: bookworm-security
Components: main
"""
SWITCHED_OFF = "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\nComponents: main\nEnabled: no\n"

# Files, what becomes of them.
DERIVED: list[tuple[dict[str, str], dict[str, str]]] = [
    (
        {"debian.sources": STANZAS},
        {
            "debian.sources": "Types: deb\nSuites: trixie\nURIs: http://mirror.example/debian\nComponents: main\n"
            "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        },
    ),
    (
        {
            "sources.list": "deb http://mirror.example/debian bookworm main contrib\n"
            "deb-src http://mirror.example/debian bookworm main\n"
        },
        {"sources.list": "deb http://mirror.example/debian trixie main contrib\n"},
    ),
    (
        {"a.list": "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian stable main # ours\n"},
        {"a.list": "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example/debian trixie main\n"},
    ),
    (
        {"debian.sources": STANZAS, "vendor.list": "deb http://vendor.example/apt vendor-bookworm main\n"},
        {
            "debian.sources": "Types: deb\nSuites: trixie\nURIs: http://mirror.example/debian\nComponents: main\n"
            "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
        },
    ),
]


@pytest.mark.parametrize(("files", "expected"), DERIVED)
def test_sources_of_another_suite(files: dict[str, str], expected: dict[str, str]) -> None:
    assert derive_sources(files, "bookworm", "trixie") == expected


@pytest.mark.parametrize("files", [{}, {"debian.sources": SWITCHED_OFF}, {"x.list": "# deb http://m bookworm main\n"}])
def test_no_source_for_the_suite_is_said(files: dict[str, str]) -> None:
    with pytest.raises(SeatrialError, match="no source for Debian bookworm"):
        derive_sources(files, "bookworm", "trixie")


def test_only_source_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list").write_text("one")
    (tmp_path / "sources.list.d" / "debian.sources").write_text("two")
    (tmp_path / "sources.list.d" / "old.list.save").write_text("three")
    assert host_sources(tmp_path) == {"sources.list": "one", "debian.sources": "two"}


@pytest.mark.parametrize(
    ("text", "words"),
    [("ID=fedora\nVERSION_ID=41\n", "fedora"), ('ID="ubuntu"\nVERSION_CODENAME=noble\n', "ubuntu"), ("", "unknown")],
)
def test_a_machine_that_is_not_debian(text: str, words: str, tmp_path: Path) -> None:
    release = tmp_path / "os-release"
    release.write_text(text)
    with pytest.raises(SeatrialError, match=words):
        packages.debian_codename(release)


def test_root_is_needed() -> None:
    packages.require_root(0)
    with pytest.raises(SeatrialError, match="needs root"):
        packages.require_root(1000)
