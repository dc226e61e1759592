"""nvidia-smi's answers and the kernel log, as NVIDIA documents them; no machine of these tests has a GPU."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.supervise import preflight_nvidia as nvidia

GB200 = "\n".join(f"{index}, NVIDIA GB200" for index in range(4)) + "\n"
LINKS = "".join(f"\t Link {link}: 50 GB/s\n" for link in range(18))
NVLINK = "".join(f"GPU {gpu}: NVIDIA GB200 (UUID: GPU-{gpu}f1c)\n{LINKS}" for gpu in range(4))
ROWS = "00000008:01:00.0, {}, {}\n00000009:01:00.0, No, No\n"
PCI = "PCI:0008:01:00"


@pytest.mark.parametrize(
    ("said", "promised", "kind", "faults"),
    [
        (GB200, 4, "gb200", ()),
        (GB200, 4, None, ()),
        ("0, NVIDIA H100 80GB HBM3\n", 1, "h100_80gb", ()),
        (GB200.replace("3, NVIDIA GB200\n", ""), 4, "gb200", ("3 GPUs are visible, 4 are promised",)),
        (GB200.replace("2, NVIDIA GB200", "2, NVIDIA H100"), 4, "gb200",
         ("GPU 2 is 'NVIDIA H100', promised is gb200",)),
        ("No devices were found\n", 4, "gb200", ("0 GPUs are visible, 4 are promised",)),
        ("", 4, "gb200", ("0 GPUs are visible, 4 are promised",)),
    ],
)  # fmt: skip
def test_gpus(said: str, promised: int, kind: str | None, faults: tuple[str, ...]) -> None:
    assert nvidia.gpus(said, promised, kind) == (faults, True)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("0, 0\n1, 0\n", ((), True)),
        ("0, 0\n1, 3\n", (("GPU 1: 3 uncorrected ECC errors",), True)),
        ("0, [N/A]\n1, [N/A]\n", ((), False)),
        ("0, [Not Supported]\n1, 2\n", (("GPU 1: 2 uncorrected ECC errors",), True)),
        ('Field "ecc.errors" is not a valid field to query.\n', ((), False)),
    ],
)
def test_ecc(said: str, expected: tuple[tuple[str, ...], bool]) -> None:
    assert nvidia.ecc(said) == expected


@pytest.mark.parametrize(
    ("pending", "failure", "faults"),
    [
        ("No", "No", ()),
        ("0", "0", ()),
        ("Yes", "No", ("GPU 00000008:01:00.0: a memory row waits for a reset to be remapped",)),
        ("0", "1", ("GPU 00000008:01:00.0: remapping a memory row failed",)),
        ("[N/A]", "[N/A]", ()),
    ],
)
def test_rows(pending: str, failure: str, faults: tuple[str, ...]) -> None:
    assert nvidia.rows(ROWS.format(pending, failure)) == (faults, True)


def test_rows_that_are_not_told() -> None:
    assert nvidia.rows("00000008:01:00.0, [N/A], [N/A]\n") == ((), False)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (NVLINK, ((), True)),
        (NVLINK.replace("Link 17: 50 GB/s", "Link 17: <inactive>", 1), (("GPU 0: NVLink down: 17",), True)),
        ("GPU 0: NVIDIA H100 PCIe (UUID: GPU-1)\n"
         "NVML: Unable to retrieve NVLink information as all links are inActive\n",
         (("GPU 0: NVLink down: all",), True)),
        ("GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
         "\t Link 2: <inactive>\n", (("GPU 0: NVLink down: 1, 2",), True)),
        ("", ((), False)),
        ("GPU 0: NVIDIA A10 (UUID: GPU-1)\n", ((), False)),
    ],
)  # fmt: skip
def test_nvlink(said: str, expected: tuple[tuple[str, ...], bool]) -> None:
    assert nvidia.nvlink(said) == expected


def xid(number: int, more: str = "", pci: str = PCI) -> str:
    return f"NVRM: Xid ({pci}): {number}, {more or 'pid=2211, name=python3'}"


LOADED = "NVRM: loading NVIDIA UNIX Open Kernel Module for aarch64  570.124.06  Release Build"
RESET = xid(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
DONE = xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
FATAL = "NETIR_LINK_EVT Fatal XC0 i0 Link 04 (0x02500011 0x0 0x0 0x0)"


@pytest.mark.parametrize("number", [46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 158])
def test_an_xid_that_only_a_reset_ends(number: int) -> None:
    assert nvidia.xids([(600.0, xid(number))]).faults == (f"{PCI}: Xid {number} 10 min ago",)


@pytest.mark.parametrize("number", [13, 31, 43, 45, 63, 92, 94, 121, 137, 155, 156, 999])
def test_an_xid_of_an_application_or_of_a_repair_is_none(number: int) -> None:
    assert nvidia.xids([(600.0, xid(number))]).faults == ()


@pytest.mark.parametrize(
    ("lines", "faults"),
    [
        ([(7 * 3600.0, xid(79))], 0),  # long before this run
        ([(5 * 3600.0, xid(79))], 1),
        ([(900.0, xid(79)), (800.0, LOADED)], 0),
        ([(900.0, LOADED), (800.0, xid(79))], 1),
        ([(900.0, xid(95)), (899.0, RESET)], 2),
        ([(900.0, xid(95)), (899.0, RESET), (100.0, DONE)], 0),
        ([(900.0, xid(95, pci="PCI:0009:01:00")), (100.0, DONE)], 1),  # another GPU's
        ([(60.0, xid(149, FATAL))], 1),
        ([(60.0, xid(149, FATAL.replace("Fatal", "Nonfatal")))], 0),
        ([(60.0, xid(154, "something else"))], 0),
        ([(60.0, "NVRM: GPU Board Serial Number: 79"), (50.0, "usb 1-1: Xid 79")], 0),
    ],
)  # fmt: skip
def test_what_ends_an_xid(lines: list[tuple[float, str]], faults: int) -> None:
    assert len(nvidia.xids(lines).faults) == faults


def test_xid_154_says_what_it_asks_for() -> None:
    assert nvidia.xids([(7200.0, RESET)]).faults == (f"{PCI}: Xid 154 (GPU Reset Required) 2.0 h ago",)


@given(st.text() | st.lists(st.sampled_from([GB200, NVLINK, ROWS, "GPU ", ", ", "\n", "9" * 30, "²"])).map("".join))
def test_no_text_makes_them_raise(said: str) -> None:
    nvidia.gpus(said, 4, "gb200")
    nvidia.ecc(said)
    nvidia.rows(said)
    nvidia.nvlink(said)
    nvidia.xids([(1.0, said), (0.5, f"NVRM: Xid ({said}): 154, {said}"), (0.1, xid(79, said))])
