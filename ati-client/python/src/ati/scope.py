"""Scopes: the words of a token that say what its holder may use."""

from __future__ import annotations

from typing import Iterable, List, Optional

from .errors import ScopeError


def build_scope_string(
    *,
    tools: Optional[List[str]] = None,
    skills: Optional[List[str]] = None,
    extra: Optional[List[str]] = None,
) -> str:
    """The `scope` claim of these tools, skills and further scopes, each once.

    >>> build_scope_string(tools=["web_search", "github:*"], skills=["research-*"], extra=["help"])
    'tool:web_search tool:github:* skill:research-* help'
    """
    scopes = [
        *_prefixed("tool:", tools),
        *_prefixed("skill:", skills),
        *_prefixed("", extra),
    ]
    return " ".join(dict.fromkeys(scopes))


def _prefixed(prefix: str, names: Optional[Iterable[str]]) -> Iterable[str]:
    if isinstance(names, str):
        raise ScopeError(f"expected a list of names, and not the text {names!r}")
    for name in names or ():
        # White space separates scopes: a name with some would grant more than it says.
        if not isinstance(name, str) or not name or len(name.split()) != 1 or name != name.strip():
            raise ScopeError(f"not a name: {name!r} is empty, or has white space in it")
        yield name if name.startswith(prefix) else prefix + name


def parse_scopes(scope_str: str) -> List[str]:
    """The scopes of a `scope` claim."""
    return scope_str.split()


def matches_wildcard(name: str, pattern: str) -> bool:
    """Whether a granted pattern covers a scope. A `*` stands at the end only."""
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return name == pattern


def check_scope(required: str, granted: List[str]) -> bool:
    """Whether one of the granted scopes covers the required one."""
    return any(matches_wildcard(required, pattern) for pattern in granted)
