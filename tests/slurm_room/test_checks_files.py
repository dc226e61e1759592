"""What a job needs besides Slurm: variables of the shell, image, mounts, run folder, tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from seatrial.slurm.check_files import check_files, look, on_host
from seatrial.spec.resolve import resolve
from seatrial.spec.runspec import RunSpec

MODEL = "some/model"


@dataclass(frozen=True)
class Case:
    """``values``: --set pairs; ``shell``: the submitting one's; ``{here}`` is a shared folder with ``image.sqsh``,
    ``tokenizer/`` and a Hugging Face cache ``hf/``. ``found``: (severity, field, words)."""

    name: str
    values: Mapping[str, str] = field(default_factory=dict)
    shell: Mapping[str, str] = field(default_factory=dict)
    found: Sequence[tuple[str, str, str]] = ()


MOUNT = {"profile.container.mounts": "['{here}:{here}']"}
HUB = {"data.tokenizer_model": MODEL} | MOUNT
IMAGE, MOUNTS, PASS = "profile.container.image", "profile.container.mounts", "profile.env.pass"
WEBHOOK = "profile.notify.webhook"
TOKENIZER = "data.tokenizer_model"
CASES = [
    Case("all is well", MOUNT),
    Case("names that are set", MOUNT | {PASS: "[HF_TOKEN, EMPTY]"}, {"HF_TOKEN": "hf_verysecret", "EMPTY": ""}),
    Case("names that are unset", MOUNT | {PASS: "[HF_TOKEN, A, B]"}, {"HF_TOKEN": "hf_verysecret"},
         [("error", PASS, "unset in this shell")]),
    Case("Slurm's own variables", MOUNT | {PASS: "[SBATCH_ACCOUNT]"}, {"SBATCH_ACCOUNT": "x"},
         [("error", PASS, "are kept from the job")]),
    Case("a webhook", MOUNT | {WEBHOOK: "HOOK"}, {"HOOK": "hf_verysecret"}),
    Case("a webhook without its address", MOUNT | {WEBHOOK: "HOOK"},
         found=[("warning", WEBHOOK, "unset in this shell")]),
    Case("a webhook in a variable of Slurm's", MOUNT | {WEBHOOK: "SLURM_HOOK"}, {"SLURM_HOOK": "hf_verysecret"},
         [("warning", WEBHOOK, "are kept from the job")]),
    Case("no such image", MOUNT | {IMAGE: "{here}/other.sqsh"}, found=[("error", IMAGE, "it is missing")]),
    Case("an image that only compute nodes see", MOUNT | {IMAGE: "/nonexistent/nemo.sqsh"},
         found=[("warning", IMAGE, "only the compute nodes know")]),
    Case("a relative image", MOUNT | {IMAGE: "nemo.sqsh"}, found=[("error", IMAGE, "is absolute")]),
    Case("a registry's image", MOUNT | {IMAGE: "team/nemo:26.06"},
         found=[("note", IMAGE, "a reference to a registry")]),
    Case("a mount of nothing", {MOUNTS: "['{here}:{here}', '{here}/none:/none:ro']"},
         found=[("error", MOUNTS, "it is missing")]),
    Case("a relative mount", {MOUNTS: "['{here}:{here}', 'data:/data']"}, found=[("error", MOUNTS, "absolute paths")]),
    Case("a mount with a comma", {MOUNTS: "['{here}:{here}', '{here}/a,b:/b']"}, found=[("error", MOUNTS, "no comma")]),
    Case("a mount of its own name", {MOUNTS: "['{here}']"}),
    Case("a run folder of the node's own", MOUNT | {"profile.paths.runs": "/tmp/runs"},
         found=[("warning", "profile.paths.runs", "/tmp is each node's own")]),
    Case("a run folder on the node's scratch",
         MOUNT | {"profile.paths.runs": "/raid/x", "profile.paths.node_local": "/raid"},
         found=[("warning", "profile.paths.runs", "/raid is each node's own")]),
    Case("no tokenizer there", MOUNT | {TOKENIZER: "{here}/none"}, found=[("error", TOKENIZER, "this is missing")]),
    Case("a tokenizer that only compute nodes see", {MOUNTS: "['{here}:{here}', '/nonexistent:/nonexistent']",
                                                     TOKENIZER: "/nonexistent/t"},
         found=[("warning", MOUNTS, "only the compute nodes"), ("warning", TOKENIZER, "only the compute nodes")]),
    Case("a tokenizer under a mount's other name", {MOUNTS: "['{here}:/inside']", TOKENIZER: "/inside/tokenizer"}),
    Case("a tokenizer that no mount shows", {TOKENIZER: "{here}/tokenizer"},
         found=[("warning", TOKENIZER, "no mount shows it")]),
    Case("data that no mount shows", MOUNT | {"data.data_path": "['/elsewhere/text_document']"},
         found=[("warning", "data.data_path", "no mount shows it")]),
    Case("a file's name for another tokenizer",
         MOUNT | {"data.tokenizer_type": "SentencePieceTokenizer", TOKENIZER: "t.model"},
         found=[("error", TOKENIZER, "named from / on")]),
    Case("a hub's name, offline, cached", HUB | {"profile.env.set": "{HF_HOME: '{here}/hf'}"}),
    Case("cached where HF_HUB_CACHE says", HUB | {"profile.env.set": "{HF_HUB_CACHE: '{here}/hf/hub'}"}),
    Case("cached where the shell's HF_HOME says", HUB | {PASS: "[HF_HOME]"}, {"HF_HOME": "{here}/hf"}),
    Case("the shell's HF_HOME does not reach the ranks", HUB, {"HF_HOME": "{here}/hf"},
         [("warning", TOKENIZER, "which no mount shows to the ranks")]),
    Case("a hub's name, offline, not cached",
         HUB | {TOKENIZER: "other/model", "profile.env.set": "{HF_HOME: '{here}/hf'}"},
         found=[("warning", TOKENIZER, "TRANSFORMERS_OFFLINE is on: compute nodes may be offline")]),
    Case("a hub's name, online", HUB | {"profile.env.set": "{TRANSFORMERS_OFFLINE: '0'}"},
         found=[("note", TOKENIZER, "every rank asks the hub")]),
    Case("no tokenizer needed", {"data.tokenizer_type": "NullTokenizer", TOKENIZER: "null"}),
]  # fmt: skip


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder that stands for a shared file system, though it lies under /tmp."""
    (tmp_path / "image.sqsh").touch()
    (tmp_path / "tokenizer").mkdir()
    snapshot = tmp_path / "hf" / "hub" / "models--some--model" / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").touch()
    return tmp_path


def build(here: Path, values: Mapping[str, str]) -> RunSpec:
    known = {
        "profile.account": "lab", "profile.partition": "batch", "profile.paths.runs": "/srv/shared/runs",
        IMAGE: "{here}/image.sqsh", TOKENIZER: "{here}/tokenizer",
    }  # fmt: skip
    if values.get("profile.container.mounts") is None:
        known.pop(TOKENIZER)
    pairs = [(key, text.replace("{here}", str(here))) for key, text in (known | dict(values)).items()]
    return resolve("nemotron_3_nano_gb200", "gb200-8gpu", "gate", pairs)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_files(case: Case, here: Path) -> None:
    shell = {"HOME": "/root"} | {name: value.replace("{here}", str(here)) for name, value in case.shell.items()}
    found = list(check_files(build(here, case.values), shell))
    assert [(f.severity, f.field) for f in found] == [(severity, key) for severity, key, _ in case.found], found
    for finding, (_, _, words) in zip(found, case.found):
        assert words in finding.rule
        assert "hf_verysecret" not in repr(finding)
        assert finding.file


def test_unset_names_are_all_listed(here: Path) -> None:
    (finding,) = check_files(build(here, MOUNT | {PASS: "[HF_TOKEN, A, B]"}), {"HF_TOKEN": "hf_verysecret"})
    assert finding.value == ["A", "B"] and "export A B" in finding.fix


def test_a_file_nobody_may_read(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)  # root may read everything
    assert look(str(here / "image.sqsh")) == "unreadable"


@pytest.mark.parametrize(
    ("path", "host"),
    [
        ("/data/a", "/lustre/data/a"), ("/data/deep/a", "/deep/a"), ("/data", "/lustre/data"), ("/database", None),
        ("/srv/shared/runs/r/x", "/srv/shared/runs/r/x"), ("/etc/x", None),
    ],
)  # fmt: skip
def test_the_longest_mount_counts(path: str, host: str | None, here: Path) -> None:
    spec = build(here, {MOUNTS: "['/lustre/data:/data', '/deep:/data/deep:ro']"})
    assert on_host(spec, path) == host
    assert on_host(build(here, {IMAGE: "null"}), path) == path
