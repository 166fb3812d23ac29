"""Prepares the sources of the site in a folder: the pages of docs/, README.md and CONTRIBUTING.md, with links that hold there, and zensical.toml,
whose navigation is the reading order of docs/README.md. A link to a file that is no page leads to the repository.

usage: site.py FOLDER"""

import json
import pathlib
import re
import shutil
import sys

REPOSITORY = "https://github.com/agentfly/agentfly/blob/main/"
root = pathlib.Path(__file__).resolve().parent.parent
out = pathlib.Path(sys.argv[1])
# The page of a file of the repository that is one; README.md of docs is the site's first page.
pages = {"README.md": "about.md", "CONTRIBUTING.md": "contributing.md"}


def mended(text: str, folder: pathlib.Path, page: pathlib.Path) -> str:
    """The text of a page whose source lies in folder, with links as they are on the site."""

    def link(match: re.Match) -> str:
        target, _, anchor = match[2].partition("#")
        if not target or ":" in target:
            return match[0]
        file = (folder / target).resolve().relative_to(root)
        if file.parts[0] == "docs":
            to = pathlib.Path(*file.parts[1:])
        elif str(file) in pages:
            to = pathlib.Path(pages[str(file)])
        else:
            return f"{match[1]}({REPOSITORY}{file})"
        up = "../" * len(page.parent.parts)
        return f"{match[1]}({up}{to}{'#' + anchor if anchor else ''})"

    return re.sub(r"(\[[^\]]*\])\(([^)\s]+)\)", link, text)


def navigation() -> list:
    """Chapters with their pages, in the order of docs/README.md."""
    chapters, seen = [{"The book": ["README.md", {"What it is": "about.md"}]}], set()
    for line in (root / "docs" / "README.md").read_text().split("\n## ")[2:]:
        title, _, body = line.partition("\n")
        entries = []
        for name, target in re.findall(r"\[([^\]]+)\]\(([^)#]+)\)", body):
            target = pages.get(target.removeprefix("../"), target)
            if target not in seen and target.endswith(".md"):
                seen.add(target)
                entries.append({" ".join(name.split())[:1].upper() + " ".join(name.split())[1:]: target})
        chapters.append({title: entries})
    return chapters


shutil.rmtree(out, ignore_errors=True)
shutil.copytree(root / "docs", out / "pages", ignore=shutil.ignore_patterns("*.go"))
for source in sorted((root / "docs").rglob("*.md")):
    page = source.relative_to(root / "docs")
    (out / "pages" / page).write_text(mended(source.read_text(), source.parent, page))
for file, page in pages.items():
    (out / "pages" / page).write_text(mended((root / file).read_text(), root, pathlib.Path(page)))
# JSON is TOML where lists and strings go; tables of a list are written inline.
def toml(value) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(k)} = {toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(v) for v in value) + "]"
    return json.dumps(value)


(out / "zensical.toml").write_text(f"""[project]
site_name = "AgentFly in Go"
docs_dir = "pages"
site_dir = "site"
nav = {toml(navigation())}
[project.theme]
font = false
features = ["navigation.sections", "navigation.footer", "search.highlight", "content.code.copy"]
[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
""")
