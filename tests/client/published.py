"""The ati-client that existing deployments have, unchanged, against our proxy. Run by a Python that
has it installed. Usage: published.py --ati BINARY"""

import argparse
import json
import pathlib
import subprocess
import tempfile
import warnings

import ati
import client
from client import SECRET, check


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ati", required=True)
    args = parser.parse_args()
    from importlib.metadata import version

    check("the published package", version("ati-client") == "0.7.15", version("ati-client"))
    with tempfile.TemporaryDirectory() as home:
        home = pathlib.Path(home)
        edge = client.Edge(args.ati, home / "edge")
        edge.shipped(client.upstream())
        for name in ("research", "other"):
            edge.write(f"skills/{name}/SKILL.md", f"---\nname: {name}\ndescription: About {name}\n---\nRead papers.\n")
            edge.write(f"skills/{name}/scripts/x.sh", "#!/bin/sh\n")
        edge.start(ATI_SKILL_REGISTRY=f"file://{edge.home}/skills")
        try:
            use(edge, home)
        finally:
            edge.stop()
    client.finish("with the published client")


def use(edge, home):
    orch = ati.AtiOrchestrator(proxy_url=edge.url, secret=SECRET)
    env = orch.provision_sandbox(
        agent_id="sandbox:1", tools=["crossref:*"], skills=["research"], extra_scopes=["help"], ttl_seconds=600,
        rate={"tool:crossref:*": "2/hour"}, fetch_skill_content=True,
    )
    skills = env.pop("skills")
    check("skills come along", "Read papers." in skills.get("research", ""), skills)
    token = env["ATI_SESSION_TOKEN"]
    check("its token is valid", orch.validate_token(token).sub == "sandbox:1")

    def run(*line):
        return subprocess.run([edge.ati, *line], env={"PATH": "/bin", "HOME": str(home), "ATI_DIR": str(home / "box"), **env}, capture_output=True, text=True)

    found = run("run", "crossref:listWorks", "--query", "x")
    check("its sandbox calls a tool", json.loads(found.stdout)["marker"] == "seen-by-the-upstream", found.stderr)
    refused = run("run", "hackernews_top_stories")
    check("and no other", refused.returncode == 3, refused.stderr)
    run("run", "crossref:listWorks", "--query", "x")
    limited = run("run", "crossref:listWorks", "--query", "x")
    check("its rates hold", limited.returncode == 5, limited.stderr)
    listing = orch.build_skill_listing(token=token)
    check("its listing shows the token's skills", "- research: About research" in listing and "other" not in listing, listing)
    content = orch.fetch_skills(scopes=["skill:research"], token=token)
    check("its skills have their text", "Read papers." in content.get("research", ""), content)
    path = pathlib.Path(orch.download_skill("research", str(home / "one"), token=token))
    check("it downloads a skill", (path / "scripts/x.sh").exists(), path)
    with warnings.catch_warnings(record=True):
        paths = orch.download_skills(["research", "other"], str(home / "two"), token=token)
    check("it downloads those that the token shows", list(paths) == ["research"], paths)
    orch.build_tool_instructions(tools=["crossref:listWorks"], token=token)
    claims = ati.validate_token(subprocess.run([edge.ati, "token", "issue", "--sub", "b", "--scope", "x", "--secret", SECRET], env=edge.env(), capture_output=True, text=True).stdout.strip(), secret=SECRET)
    check("it takes a token of ati", claims.sub == "b")


if __name__ == "__main__":
    main()
