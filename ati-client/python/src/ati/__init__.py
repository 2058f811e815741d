"""Provision agent sandboxes behind ati, and call tools from inside of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .client import AsyncAtiClient, AtiClient
from .errors import (
    AccessDenied,
    AtiError,
    ConfirmationRequired,
    InvalidArguments,
    NotFound,
    ProvisionError,
    ProxyError,
    ProxyUnreachable,
    RateLimited,
    ScopeError,
    SignatureRefused,
    SigningError,
    TokenError,
    TokenExpired,
    TokenForged,
    TokenMalformed,
    TokenNotForUs,
    Unauthorized,
    Unavailable,
    UpstreamError,
)
from .orchestrator import AtiOrchestrator
from .scope import build_scope_string, check_scope, matches_wildcard, parse_scopes
from .signing import sign_request
from .skills import build_skill_instructions
from .token import AtiNamespace, TokenClaims, inspect_token, issue_token, validate_token

if TYPE_CHECKING:
    from .httpx_auth import SandboxAuth
    from .requests_adapter import SandboxAdapter

__version__ = "0.9.0"

# Without SandboxAuth and SandboxAdapter: `import *` must not need httpx and requests.
__all__ = [
    "AccessDenied",
    "AsyncAtiClient",
    "AtiClient",
    "AtiError",
    "AtiNamespace",
    "AtiOrchestrator",
    "ConfirmationRequired",
    "InvalidArguments",
    "NotFound",
    "ProvisionError",
    "ProxyError",
    "ProxyUnreachable",
    "RateLimited",
    "ScopeError",
    "SignatureRefused",
    "SigningError",
    "TokenClaims",
    "TokenError",
    "TokenExpired",
    "TokenForged",
    "TokenMalformed",
    "TokenNotForUs",
    "Unauthorized",
    "Unavailable",
    "UpstreamError",
    "build_scope_string",
    "build_skill_instructions",
    "check_scope",
    "inspect_token",
    "issue_token",
    "matches_wildcard",
    "parse_scopes",
    "sign_request",
    "validate_token",
]


def __getattr__(name: str) -> Any:
    # Only where they are asked for: httpx and requests need not be installed.
    if name == "SandboxAuth":
        from .httpx_auth import SandboxAuth

        return SandboxAuth
    if name == "SandboxAdapter":
        from .requests_adapter import SandboxAdapter

        return SandboxAdapter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
