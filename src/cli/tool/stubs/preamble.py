"""Tools behind ati as typed functions. Made by `ati tool stubs --lang py`.

Each function runs `ati run`, which has to be on PATH (or named by ATI_BIN), and returns the tool's
result. Python 3.9 and later, standard library only.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Dict, List, Literal, Optional, Union

# Imported for the types below, whether or not they are used.
_ = (Literal, Union)


class AtiError(Exception):
    """A call that failed. `code` and `hint` are those of ati, `exit_code` says whose fault it is."""

    def __init__(self, message: str, code: str, exit_code: int, hint: Optional[str]) -> None:
        super().__init__(message)
        self.code = code
        self.exit_code = exit_code
        self.hint = hint


def _call(tool: str, required: Dict[str, Any], optional: Dict[str, Any]) -> Any:
    given = {name: value for name, value in optional.items() if value is not None}
    return _run(tool, ["-"], json.dumps({**required, **given}))


def _run(tool: str, words: List[str], arguments: Optional[str]) -> Any:
    ati = os.environ.get("ATI_BIN", "ati")
    try:
        ended = subprocess.run(
            [ati, "--output", "json", "run", tool, *words],
            input=arguments or "",
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
    except OSError as error:
        message = f"{ati} can't be run: {error.strerror}"
        raise AtiError(message, "unknown", 127, "put ati on PATH, or name it by ATI_BIN") from error
    if ended.returncode == 0:
        return json.loads(ended.stdout) if ended.stdout.strip() else None
    lines = ended.stderr.strip().splitlines()
    try:
        told = json.loads(lines[-1])["error"]
        message, code, hint = str(told["message"]), str(told["code"]), told.get("hint")
    except (IndexError, KeyError, TypeError, ValueError):
        message, code, hint = ended.stderr.strip(), "unknown", None
    raise AtiError(message, code, ended.returncode, hint)
