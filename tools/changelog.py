"""Compile the fragments in `changes/` into CHANGELOG.md.

    make changelog                                        print what the next release would say
    make changelog VERSION=0.1.0 DATE=2026-06-18          write it, and delete the fragments

A fragment is a file `changes/NAME.KIND.md` of a sentence or two, for people who use bucketlake. KIND says what it is:

    feature    something that could not be done before
    change     something that is done otherwise now; says what to do about it
    fix        something that was wrong
    removal    something that is gone; says what to use instead
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
KINDS = {"feature": "New", "change": "Changed", "fix": "Fixed", "removal": "Removed"}
START = "<!-- releases -->\n"
_NAME = re.compile(rf"(?P<name>[a-z0-9]+(?:-[a-z0-9]+)*)\.(?P<kind>{'|'.join(KINDS)})\.md")
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True, order=True)
class Fragment:
    """One change."""

    name: str
    kind: str
    text: str


def fragments(folder: Path) -> list[Fragment]:
    """Read the fragments of a folder, by name; SystemExit says which one is no fragment."""
    found = []
    for file in sorted(folder.glob("*")):
        match = _NAME.fullmatch(file.name)
        text = file.read_text("utf-8").strip()
        if match is None:
            raise SystemExit(f"{file.name}: expected NAME.KIND.md, where KIND is one of {', '.join(KINDS)}")
        if not text:
            raise SystemExit(f"{file.name} is empty; expected a sentence that says what changes for a user")
        found.append(Fragment(match["name"], match["kind"], text))
    return found


def section(changes: Sequence[Fragment], title: str) -> str:
    """Write the section of one release.

    >>> print(section([Fragment("get", "fix", "It works.")], "1.0.0"))
    ## 1.0.0
    <BLANKLINE>
    ### Fixed
    <BLANKLINE>
    - It works.
    <BLANKLINE>
    """
    lines = [f"## {title}", ""]
    for kind, heading in KINDS.items():
        texts = [change.text for change in changes if change.kind == kind]
        if texts:
            lines += [f"### {heading}", "", *("- " + text.replace("\n", "\n  ") for text in texts), ""]
    return "\n".join(lines)


def with_release(before: str, changes: Sequence[Fragment], version: str, date: str) -> str:
    """Return the changelog with one more release, above those before; SystemExit says what is wrong."""
    if not _VERSION.fullmatch(version):
        raise SystemExit(f"VERSION is {version!r}; expected a number such as 0.2.0 or 0.2.0rc1")
    if not _DATE.fullmatch(date):
        raise SystemExit(f"DATE is {date!r}; expected one such as 2026-06-18")
    if not changes:
        raise SystemExit("there are no fragments in changes/: nothing has changed")
    if f"\n## {version} " in before:
        raise SystemExit(f"CHANGELOG.md has {version} already; expected a new version")
    head, mark, rest = before.partition(START)
    if not mark:
        raise SystemExit(f"CHANGELOG.md has no line {START.strip()}: it says where releases begin")
    return f"{head}{mark}\n{section(changes, f'{version} ({date})')}{rest}"


def main(root: Path = ROOT, arguments: Mapping[str, str] | None = None) -> None:
    """Print the next release, or write it and delete its fragments."""
    parser = argparse.ArgumentParser(description="Compile changes/ into CHANGELOG.md.")
    parser.add_argument("--version", default="")
    parser.add_argument("--date", default="")
    given = vars(parser.parse_args()) if arguments is None else arguments
    folder, page = root / "changes", root / "CHANGELOG.md"
    changes = fragments(folder)
    if not given.get("version"):
        print(section(changes, "Next release"))
        return
    page.write_text(
        with_release(page.read_text("utf-8"), changes, given["version"], given.get("date", "")), "utf-8"
    )
    for change in changes:
        (folder / f"{change.name}.{change.kind}.md").unlink()


if __name__ == "__main__":
    main()
