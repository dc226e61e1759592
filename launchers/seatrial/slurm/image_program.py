"""Runs in the image, as text given to its Python: tells what is there. Standard library, Python 3.9 and newer.

Its argument: a JSON object with "modules" (list of [module, distribution, attribute or null]) and "programs" (list of
names). Each line that it prints is a JSON object after MARK; a module has a line before it is
imported and one after it, so that one whose import ends the process is known by its name.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import shutil
import sys
from importlib import metadata

MARK = "[seatrial image] "


def say(**fact: object) -> None:
    """Print one fact."""
    print(MARK + json.dumps(fact), flush=True)


def version_of(module: object, distribution: str) -> object:
    """Return the installed version of a distribution, else what the module says of itself, else None."""
    try:
        return metadata.version(distribution)
    except Exception:
        found = getattr(module, "__version__", None)
        return None if found is None else str(found)


def look_at(name: str, distribution: str, attribute: object) -> None:
    """Import a module and say how that went."""
    say(importing=name)
    try:
        module = importlib.import_module(name)
    except BaseException as error:
        lacking = getattr(error, "name", None) if isinstance(error, ImportError) else None
        missing = lacking is not None and f"{name}.".startswith(f"{lacking}.")
        words = f"{type(error).__name__}: {error}"[:500]
        say(module=name, state="missing" if missing else "broken", words=words)
        return
    if attribute and not hasattr(module, str(attribute)):
        say(module=name, state="incomplete", words=f"{name} has no {attribute}")
        return
    say(module=name, state="there", version=version_of(module, distribution), file=getattr(module, "__file__", None))


def look_at_gpu() -> None:
    """Say which GPU torch sees, if torch is there."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    try:
        gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
        say(gpu=gpu, cuda=torch.version.cuda)
    except Exception as error:
        say(gpu=None, cuda=None, words=f"{type(error).__name__}: {error}"[:500])


def main() -> None:
    """Say everything."""
    wanted = json.loads(sys.argv[1])
    # What lies in the folder of this step is none of the image's modules.
    sys.path[:] = [entry for entry in sys.path if entry]
    say(python=platform.python_version(), machine=platform.machine(), executable=sys.executable, node=platform.node())
    cuda = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    for program in wanted["programs"]:
        say(program=program, found=shutil.which(program, path=f"{cuda}/bin:{os.environ.get('PATH', os.defpath)}"))
    for name, distribution, attribute in wanted["modules"]:
        look_at(name, distribution, attribute)
    look_at_gpu()
    say(done=True)


if __name__ == "__main__":
    main()
