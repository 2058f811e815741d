"""Skills: what an agent is told about them, and their files."""

from __future__ import annotations

import base64
import binascii
import os
import tempfile
import warnings
from pathlib import Path, PurePosixPath
from typing import Any, Dict, List, Mapping, Tuple

from .errors import ProvisionError

#: Characters of one description, and of all entries together.
LONGEST_DESCRIPTION = 250
LISTING_BUDGET = 8000
#: Descriptions that would be shorter than this are left out.
SHORTEST_DESCRIPTION = 20

_INTRODUCTION = (
    "The following skills are available. To load one, run `ati skill fetch read <name>` via the "
    "Bash tool — the skill's body will be returned. Follow the skill's instructions literally. "
    "Files referenced inside a skill body live at `skillati://<name>/<path>` — fetch them via "
    "`ati skill fetch cat <name> <path>`."
)


def listing(skills: List[Mapping[str, Any]]) -> str:
    """A block for a system prompt with a line for each skill. Empty where there are none."""
    if not all(isinstance(skill, dict) for skill in skills):
        raise ProvisionError("a catalogue with rows that are no objects is not that of an ATI proxy")
    entries = [entry for entry in map(_entry, skills) if entry[0]]
    if not entries:
        return ""
    lines = _lines(entries, LONGEST_DESCRIPTION)
    if _size(lines) > LISTING_BUDGET:
        # Names come before descriptions, which share what is left.
        names = _size(_lines(entries, 0))
        described = sum(1 for _, text in entries if text) or 1
        share = (LISTING_BUDGET - names) // described - len(": ")
        lines = _within_budget(_lines(entries, share if share >= SHORTEST_DESCRIPTION else 0))
    body = "\n".join(lines)
    return f"<system-reminder>\n{_INTRODUCTION}\n\n{body}\n</system-reminder>"


def _entry(skill: Mapping[str, Any]) -> Tuple[str, str]:
    description, when = _line(skill.get("description")), _line(skill.get("when_to_use"))
    text = f"{description} - {when}" if description and when else description or when
    return _line(skill.get("name")), text


def _line(text: Any) -> str:
    # On one line, and without tags: a description must not end the block.
    words = " ".join(str(text or "").split())
    return words.replace("<", "‹").replace(">", "›") if "system-reminder" in words else words


def _lines(entries: List[Tuple[str, str]], longest: int) -> List[str]:
    return [f"- {name}: {_clipped(text, longest)}" if text and longest > 0 else f"- {name}" for name, text in entries]


def _clipped(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1].rstrip() + "…"


def _size(lines: List[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _within_budget(lines: List[str]) -> List[str]:
    """The lines, or as many as there is room for, and a last one that says how many more there are."""
    if _size(lines) <= LISTING_BUDGET:
        return lines
    used = 0
    for shown, line in enumerate(lines):
        more = f"- ... (+{len(lines) - shown} more — run `ati skill fetch catalog` to list all)"
        rest = f"- ... (+{len(lines) - shown - 1} more — run `ati skill fetch catalog` to list all)"
        if used + len(line) + 1 + len(rest) > LISTING_BUDGET:
            return [*lines[:shown], more]
        used += len(line) + 1
    return lines


def instructions(skills: List[str], who: str) -> str:
    warnings.warn(
        f"{who} is deprecated: use AtiOrchestrator.build_skill_listing(token=...), which shows what "
        "the token allows",
        DeprecationWarning,
        stacklevel=3,
    )
    if not skills:
        return ""
    lines = "\n".join(f"- **{name}**: `ati skill fetch read {name}`" for name in skills)
    return (
        "# Available Skills\n\n"
        "These skills say how to do the task. Read the one that fits before using its tools.\n\n"
        f"{lines}\n\n"
        "`ati skill fetch read <name>` prints a skill.\n"
    )


def build_skill_instructions(skills: List[str]) -> str:
    """Deprecated: use `AtiOrchestrator.build_skill_listing`."""
    return instructions(skills, "ati.build_skill_instructions")


def write_skill(name: str, files: Mapping[str, Any], dest_dir: str) -> str:
    """Writes the files of a skill below `dest_dir`, and returns the path of its folder."""
    _check_name(name)
    folder = Path(dest_dir).expanduser().resolve() / name
    # All of them first, so that nothing is written where one can't be.
    contents = {_relative(name, path): _content(name, path, file) for path, file in files.items()}
    for relative, content in contents.items():
        target = folder.joinpath(*relative.parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.parent.resolve().is_relative_to(folder.resolve()):
            raise ProvisionError(f"skill {name!r}: {relative} leads out of its folder")
        _replace(target, content)
    return str(folder)


def _check_name(name: str) -> None:
    if not name or name in (".", "..") or any(c in "/\\\0" for c in name):
        raise ProvisionError(f"{name!r} is no name of a skill")


def _relative(name: str, path: str) -> PurePosixPath:
    relative = PurePosixPath(path)
    if relative.is_absolute() or not relative.parts or ".." in relative.parts or "\\" in path or "\0" in path:
        raise ProvisionError(f"skill {name!r}: the path {path!r} leads out of its folder")
    return relative


def _content(name: str, path: str, file: Any) -> bytes:
    if isinstance(file, str):
        return file.encode()
    try:
        return base64.b64decode(file["base64"], validate=True)
    except (KeyError, TypeError, binascii.Error) as error:
        raise ProvisionError(f"skill {name!r}: {path} can't be decoded") from error


def _replace(target: Path, content: bytes) -> None:
    # A reader sees the old file or the new one.
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".ati-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o755 if content.startswith(b"#!") else 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise


def contents_of(resolved: Any) -> Dict[str, str]:
    """The texts of an answer of `/skills/resolve`, by name."""
    if not isinstance(resolved, list):
        raise ProvisionError("the answer of /skills/resolve is not that of an ATI proxy")
    if not all(isinstance(skill, dict) and "name" in skill for skill in resolved):
        raise ProvisionError("the answer of /skills/resolve is not that of an ATI proxy")
    return {str(skill["name"]): str(skill.get("content") or "") for skill in resolved}
