"""The signature of a request: proof to an edge in enforce mode that a sandbox of ours sends it."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import time
from typing import Dict, Optional, Type
from urllib.parse import urlsplit

from .errors import AtiError, SigningError, TokenError

#: The header that carries it.
HEADER = "X-Sandbox-Signature"

_DEFAULT_FILE = "/run/ati/sandbox_secret"
_PATH = re.compile(r"/[!-\"$->@-~]*")


def sign_request(
    method: str,
    url: str,
    *,
    secret: Optional[str] = None,
    timestamp: Optional[int] = None,
) -> Dict[str, str]:
    """The header to send with a request of this method to this URL, or path.

    The signature covers the method and the path as it is sent, not the query, and is good for about
    a minute. Without `secret` it is that of the sandbox: see `sandbox_secret`.
    """
    path = url if url.startswith("/") else urlsplit(url).path or "/"
    path = path.split("?", 1)[0].split("#", 1)[0]
    if not _PATH.fullmatch(path):
        raise SigningError("write the path as it is sent: percent-encoded, beginning with '/'")
    return {HEADER: signature(method, path, secret=secret, timestamp=timestamp)}


def signature(
    method: str, path: str, *, secret: Optional[str] = None, timestamp: Optional[int] = None
) -> str:
    """The header's value, for a path that is certainly the one that is sent."""
    if secret is None:
        secret = sandbox_secret()
    if not secret or not secret.strip():
        raise SigningError(
            "no secret to sign with: put it into ATI_SANDBOX_SECRET, the file that "
            f"ATI_SANDBOX_SECRET_FILE names, or {_DEFAULT_FILE}"
        )
    t = str(int(time.time()) if timestamp is None else timestamp)
    try:
        message = f"{t}.{method.upper()}.{path}".encode("ascii")
    except UnicodeEncodeError:
        raise SigningError("a method or path has letters that can't be sent as they are") from None
    tag = hmac.new(_key(secret.strip()), message, hashlib.sha256).hexdigest()
    return f"t={t},s={tag}"


def _key(secret: str) -> bytes:
    # As the proxy reads it: hex of even length is decoded, anything else is the key itself.
    if len(secret) % 2 == 0 and re.fullmatch(r"[0-9a-fA-F]+", secret):
        return bytes.fromhex(secret)
    return secret.encode()


def sandbox_secret() -> Optional[str]:
    """The secret of this sandbox: of ATI_SANDBOX_SECRET, of the file that ATI_SANDBOX_SECRET_FILE
    names, or of /run/ati/sandbox_secret. Files are read each time, so that they can be rotated."""
    return from_environment("ATI_SANDBOX_SECRET", _DEFAULT_FILE)


def session_token() -> Optional[str]:
    """The token of this sandbox: of ATI_SESSION_TOKEN, of the file that ATI_SESSION_TOKEN_FILE
    names, or of /run/ati/session_token. Files are read each time, so that they can be rotated."""
    return from_environment("ATI_SESSION_TOKEN", "/run/ati/session_token")


def absent_token_file() -> Optional[str]:
    """The file that ATI_SESSION_TOKEN_FILE names, where it isn't there: why there is no token."""
    named = os.environ.get("ATI_SESSION_TOKEN_FILE", "").strip()
    return named if named and not os.path.exists(named) else None


def from_environment(name: str, default_file: str) -> Optional[str]:
    value = os.environ.get(name, "").strip()
    if value:
        return value
    named = os.environ.get(f"{name}_FILE", "").strip()
    kind: Type[AtiError] = SigningError if name == "ATI_SANDBOX_SECRET" else TokenError
    try:
        with open(named or default_file, encoding="utf-8") as file:
            return file.read().strip() or None
    except FileNotFoundError:
        if named and kind is SigningError:
            # A file is named so that requests are signed.
            raise SigningError(f"{name}_FILE: {named} is not there") from None
        return None
    except OSError as error:
        raise kind(f"{named or default_file}: {error.strerror}") from error
    except ValueError:
        # Without the cause, which holds the file's bytes.
        raise kind(f"{named or default_file}: it holds no text") from None
