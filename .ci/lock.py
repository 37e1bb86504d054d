"""Writes requirements.lock: the versions of constraints.txt with the SHA-256 of every wheel that this Python takes.

Run by `make lock INDEX=...` (a package index with the simple HTML interface), on Linux x86_64 with Python 3.11. The
index is asked for hashes and nothing is downloaded; torch is the CPU build, whose wheel is on no common index, so its
hash is written here.
"""

import re
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from packaging.tags import sys_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_sdist_filename, parse_wheel_filename

ROOT = Path(__file__).parents[1]
KNOWN = {"torch": ("2.13.0+cpu", ["6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"])}
LINK = re.compile(r"<a\s[^>]*href=\"[^\"#]*/([^/\"#]+)#sha256=([0-9a-f]{64})\"")
HEAD = """\
# Written by `make lock` from constraints.txt, for Python 3.11 on Linux x86_64 with the CPU build of torch.
# pip install --require-hashes --no-deps -r requirements.lock
"""


def pins(text: str) -> dict[str, str]:
    """Names and versions of a constraints file."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lines if line}


def hashes(index: str, name: str, version: str) -> list[str]:
    """Of the wheels of a version that this interpreter takes, else of its source archive."""
    with urllib.request.urlopen(f"{index.rstrip('/')}/{name}/", timeout=60) as answer:
        files = LINK.findall(answer.read().decode())
    tags = frozenset(sys_tags())
    wheels = [digest for file, digest in files if _is_wheel(file, version, tags)]
    found = wheels or [digest for file, digest in files if _is_source(file, version)]
    if not found:
        raise ValueError(f"the index has no file of {name} {version} for this Python; change its pin.")
    return sorted(found)


def _is_wheel(file: str, version: str, tags: frozenset) -> bool:
    try:
        _, found, _, kinds = parse_wheel_filename(file)
    except InvalidWheelFilename:
        return False
    return str(found) == version and not kinds.isdisjoint(tags)


def _is_source(file: str, version: str) -> bool:
    return file.endswith(".tar.gz") and str(parse_sdist_filename(file)[1]) == version


def entry(index: str, name: str, version: str) -> str:
    version, digests = KNOWN.get(name) or (version, hashes(index, name, version))
    return " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{digest}" for digest in digests)])


def main() -> None:
    if sys.version_info[:2] != (3, 11) or sys.platform != "linux":
        sys.exit("requirements.lock is for Python 3.11 on Linux; run make lock there.")
    if len(sys.argv) != 2 or not sys.argv[1].startswith("https://"):
        sys.exit("give the address of a package index: make lock INDEX=https://.../simple")
    chosen = sorted(pins((ROOT / "constraints.txt").read_text()).items())
    with ThreadPoolExecutor(8) as pool:
        entries = list(pool.map(lambda pin: entry(sys.argv[1], *pin), chosen))
    (ROOT / "requirements.lock").write_text(HEAD + "\n".join(entries) + "\n")


if __name__ == "__main__":
    main()
