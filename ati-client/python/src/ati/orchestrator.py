"""Provisions sandboxes: issues tokens, and prepares what agents read."""

from __future__ import annotations

import warnings
from typing import Any, Dict, List, Literal, Mapping, Optional, overload
from urllib.parse import quote

from . import skills as _skills
from ._http import Transport
from .errors import NotFound, ProvisionError
from .scope import build_scope_string
from .token import (
    DEFAULT_AUDIENCE,
    DEFAULT_ISSUER,
    LEEWAY,
    Pem,
    TokenClaims,
    inspect_token,
    issue_token,
    validate_token,
)

#: Skills that `/skills/bundle` gives at once.
_BATCH = 50


class AtiOrchestrator:
    """Makes tokens for sandboxes of one proxy.

    Tokens are signed by HS256 with `secret` (hex, the proxy's ATI_JWT_SECRET), or by ES256 with
    `private_key` (PEM text, or a path). `sandbox_secret` is the proxy's
    `sandbox_signing_shared_secret`: with it, requests to the proxy are signed, and provisioned
    sandboxes get it as ATI_SANDBOX_SECRET. An orchestrator may be used by several threads.
    """

    def __init__(
        self,
        *,
        proxy_url: str,
        secret: Optional[str] = None,
        default_aud: str = DEFAULT_AUDIENCE,
        default_iss: str = DEFAULT_ISSUER,
        private_key: Optional[Pem] = None,
        public_key: Optional[Pem] = None,
        kid: Optional[str] = None,
        sandbox_secret: Optional[str] = None,
        timeout: float = 30.0,
        retries: int = 2,
    ) -> None:
        self._http = Transport(proxy_url, lambda: sandbox_secret, timeout=timeout, retries=retries)
        self.proxy_url = self._http.base_url
        self.default_aud, self.default_iss = default_aud, default_iss
        self.secret, self._kid, self._sandbox_secret = secret, kid, sandbox_secret
        self._private_key, self._public_key = private_key, public_key

    @overload
    def provision_sandbox(
        self,
        *,
        agent_id: str,
        tools: Optional[List[str]] = None,
        skills: Optional[List[str]] = None,
        extra_scopes: Optional[List[str]] = None,
        ttl_seconds: int = 3600,
        rate: Optional[Dict[str, str]] = None,
        customer_id: Optional[str] = None,
        fetch_skill_content: Literal[False] = False,
        job_id: Optional[str] = None,
        sandbox_id: Optional[str] = None,
    ) -> Dict[str, str]: ...

    @overload
    def provision_sandbox(
        self,
        *,
        agent_id: str,
        tools: Optional[List[str]] = None,
        skills: Optional[List[str]] = None,
        extra_scopes: Optional[List[str]] = None,
        ttl_seconds: int = 3600,
        rate: Optional[Dict[str, str]] = None,
        customer_id: Optional[str] = None,
        fetch_skill_content: bool,
        job_id: Optional[str] = None,
        sandbox_id: Optional[str] = None,
    ) -> Dict[str, Any]: ...

    def provision_sandbox(
        self,
        *,
        agent_id: str,
        tools: Optional[List[str]] = None,
        skills: Optional[List[str]] = None,
        extra_scopes: Optional[List[str]] = None,
        ttl_seconds: int = 3600,
        rate: Optional[Dict[str, str]] = None,
        customer_id: Optional[str] = None,
        fetch_skill_content: bool = False,
        job_id: Optional[str] = None,
        sandbox_id: Optional[str] = None,
    ) -> Dict[str, Any]:
        """The variables of a sandbox: ATI_PROXY_URL and ATI_SESSION_TOKEN.

        With `fetch_skill_content` also `skills`, the texts of its skills by name, which is no
        variable: take it out before the rest becomes an environment. No request is made without it.
        """
        if not isinstance(agent_id, str) or not agent_id.strip():
            raise ProvisionError("agent_id is empty, or no text: who is the sandbox?")
        if not isinstance(ttl_seconds, (int, float)) or ttl_seconds < 1:
            raise ProvisionError("ttl_seconds must be at least 1")
        scope = build_scope_string(tools=tools, skills=skills, extra=extra_scopes)
        token = issue_token(
            secret=self.secret,
            private_key=self._private_key,
            kid=self._kid,
            sub=agent_id,
            scope=scope,
            ttl_seconds=ttl_seconds,
            aud=self.default_aud,
            iss=self.default_iss,
            rate=rate,
            customer_id=customer_id,
            job_id=job_id,
            sandbox_id=sandbox_id,
        )
        env: Dict[str, Any] = {
            "ATI_PROXY_URL": self.proxy_url,
            "ATI_SESSION_TOKEN": token,
        }
        if self._sandbox_secret:
            env["ATI_SANDBOX_SECRET"] = self._sandbox_secret
        if fetch_skill_content:
            env["skills"] = self.fetch_skills(scopes=scope.split(), token=token)
        return env

    def validate_token(
        self, token: str, *, issuer: Optional[str] = None, leeway: int = LEEWAY
    ) -> TokenClaims:
        """The claims of a token of this orchestrator's key and audience."""
        return validate_token(
            token,
            secret=self.secret,
            public_key=self._private_key if self._public_key is None else self._public_key,
            audience=self.default_aud,
            issuer=issuer,
            leeway=leeway,
        )

    def build_skill_listing(self, *, token: str, search: Optional[str] = None) -> str:
        """A `<system-reminder>` block for the system prompt, with the skills that the token allows."""
        query = {"search": search} if search else None
        answer = self._http.request(
            "GET", "/skillati/catalog", token=token, query=query, what="the catalogue of skills"
        )
        return _skills.listing(_member(answer, "skills", list))

    def build_tool_instructions(self, *, tools: List[str], token: Optional[str] = None) -> str:
        """What to tell an agent about these tools: what each does, its arguments, its skills.
        Tools that there aren't, or that the token doesn't allow, are left out."""
        lines: List[str] = []
        for name in tools:
            try:
                tool = self._http.request(
                    "GET", f"/tools/{quote(name, safe='')}", token=token, what=name
                )
            except NotFound:
                continue
            if isinstance(tool, dict):
                lines += _described(tool)
        return "\n".join(["# Available Tools", "", *lines]) if lines else ""

    def fetch_skills(
        self, *, scopes: Optional[List[str]] = None, token: Optional[str] = None
    ) -> Dict[str, str]:
        """The texts of the skills that go with these scopes, or with those of the token."""
        if scopes is None:
            scopes = inspect_token(token).scopes() if token else ["*"]
        answer = self._http.request(
            "POST",
            "/skills/resolve",
            token=token,
            body={"scopes": scopes, "include_content": True},
            what="skills",
        )
        return _skills.contents_of(answer)

    def download_skill(self, name: str, dest_dir: str, *, token: Optional[str] = None) -> str:
        """Writes a skill with all its files below `dest_dir`, like .claude/skills, and returns the
        path of its folder."""
        path = f"/skills/{quote(name, safe='')}/bundle"
        answer = self._http.request("GET", path, token=token, what=f"skill {name!r}")
        return _skills.write_skill(name, _member(answer, "files", dict), dest_dir)

    def download_skills(
        self, names: List[str], dest_dir: str, *, token: Optional[str] = None
    ) -> Dict[str, str]:
        """Writes several skills, and returns the paths of their folders by name. One that the proxy
        doesn't have, or doesn't show, is left out with a warning."""
        paths: Dict[str, str] = {}
        missing: List[str] = []
        for start in range(0, len(names), _BATCH):
            batch = names[start : start + _BATCH]
            answer = self._http.request(
                "POST", "/skills/bundle", token=token, body={"names": batch}, what="skills"
            )
            found = _member(answer, "skills", dict)
            missing += [name for name in batch if name not in found]
            for name, skill in found.items():
                paths[name] = _skills.write_skill(name, _member(skill, "files", dict), dest_dir)
        if missing:
            warnings.warn(f"Skills not found on server: {missing}", stacklevel=2)
        return paths

    @staticmethod
    def build_skill_instructions(skills: List[str]) -> str:
        """Deprecated: use `build_skill_listing`."""
        return _skills.instructions(skills, "AtiOrchestrator.build_skill_instructions")

    def close(self) -> None:
        """Closes this thread's connection to the proxy."""
        self._http.close()


def _member(answer: Any, name: str, kind: type) -> Any:
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, kind):
        raise ProvisionError(f"an answer without {name!r} is not that of an ATI proxy")
    return found


def _described(tool: Mapping[str, Any]) -> List[str]:
    summary = " ".join(str(tool.get("description") or "").split())
    name = tool.get("name")
    lines = [f"- **{name}**: {summary}" if summary else f"- **{name}**"]
    schema = tool.get("input_schema")
    schema = schema if isinstance(schema, dict) else {}
    required = schema.get("required") or []
    arguments = list((schema.get("properties") or {}).items())
    arguments.sort(key=lambda argument: argument[0] not in required)
    for argument, about in arguments:
        about = about if isinstance(about, dict) else {}
        mark = ", required" if argument in required else ""
        text = " ".join(str(about.get("description") or "").split())
        lines.append(f"  - `--{argument}` ({about.get('type', 'any')}{mark}) {text}".rstrip())
    for skill in tool.get("skills") or []:
        lines.append(f"  - read first: `ati skill fetch read {skill}`")
    lines.append(f"  - call: `ati run {name}`")
    return lines
