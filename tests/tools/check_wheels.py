"""The platforms for which each extra has a wheel of every package, as a table on demand.

Needs `uv` on the PATH and a package index: `PYTHONPATH=tests python -m tools.check_wheels`.
The pinned versions of `constraints.txt` are resolved without any source distribution.
"""

import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Final

from support.project import PROJECT

PLATFORMS: Final = {
    "Linux x86_64": "x86_64-manylinux_2_28",
    "Linux aarch64": "aarch64-manylinux_2_28",
    "Alpine x86_64": "x86_64-unknown-linux-musl",
    "Alpine aarch64": "aarch64-unknown-linux-musl",
    "macOS arm64": "aarch64-apple-darwin",
    "macOS x86_64": "x86_64-apple-darwin",
}
VERSIONS: Final = ("3.11", "3.12", "3.13", "3.14")
DEVELOPMENT: Final = {"test", "view-test", "lint", "llama", "frameworks", "interop"}
"""The extras of this repository's own tests."""


def missing(extra: str, platform: str, version: str) -> str:
    """Return why an installation there needs a source distribution; empty if it does not."""
    options = ["--extra", extra] if extra else []
    ran = subprocess.run(
        [
            "uv", "pip", "compile", "--quiet", "--only-binary", ":all:",
            "--python-platform", platform, "--python-version", version,
            "--constraint", "constraints.txt", *options, "pyproject.toml",
        ],
        cwd=PROJECT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    return ran.stderr.strip() or "unknown" if ran.returncode else ""


def main() -> int:
    """Print the table, and the reason of each gap; returns 1 if there is one."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = ["", *(each for each in project["optional-dependencies"] if each not in DEVELOPMENT)]
    cases = list(product(extras, PLATFORMS.values(), VERSIONS))
    with ThreadPoolExecutor(4) as threads:
        found = dict(zip(cases, threads.map(lambda case: missing(*case), cases), strict=True))
    print("|", " | ".join(["extra", *PLATFORMS]), "|")
    print("|", " | ".join(["---"] * (len(PLATFORMS) + 1)), "|")
    for extra in extras:
        cells = [
            ", ".join(each for each in VERSIONS if not found[extra, platform, each]) or "none"
            for platform in PLATFORMS.values()
        ]
        print("|", " | ".join([extra or "(none)", *cells]), "|")
    gaps = {case: why for case, why in found.items() if why}
    for case, why in gaps.items():
        print(*case, why, sep="\n  ", file=sys.stderr)
    return 1 if gaps else 0


if __name__ == "__main__":
    sys.exit(main())
