"""`docs/` of the site: the folders' READMEs, two notebooks and the API reference, by Sphinx with MyST and autodoc.

Sphinx makes only the text of each page; the page itself is one of our templates, without Sphinx's theme, scripts and
search index.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import re
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from agentzoo.errors import ConfigError
from agentzoo.extras import needed
from agentzoo.site.render import Parts, page
from agentzoo.store.files import read_text, write_atomic

PAGE = "docs/index.html"
WITH_DOCS = Parts(docs=True)
GUIDES = {  # page -> file of the checkout
    "index": "README.md",
    "models": "agentzoo/models/README.md",
    "training": "agentzoo/training/README.md",
    "what-fits": "agentzoo/training/what_fits.md",
    "grid": "agentzoo/training/grid/README.md",
    "data": "agentzoo/data/README.md",
    "masked": "agentzoo/masked/README.md",
    "publishing": "agentzoo/hub/README.md",
    "research": "agentzoo/research/README.md",
}
NOTEBOOKS = {"first-hour": "demos/first_hour.py", "publish-your-own": "demos/publish_your_own.py"}
API = {  # page -> (title, modules)
    "api-agents": ("Agents", ("agent", "acting.conditions", "config", "registry", "types", "errors")),
    "api-recipes": ("Recipes and training", ("recipe", "training.loop", "training.finetune", "evaluation.runs")),
    "api-data": ("Data", ("data.episodes", "data.windows", "data.minari", "data.returns", "data.targets", "envs")),
    "api-evaluation": (
        "Evaluation",
        (
            *("evaluation.results", "evaluation.rollout", "evaluation.scores", "evaluation.statistics"),
            *("evaluation.method_comparison", "evaluation.baselines", "evaluation.film"),
        ),
    ),
    "api-models": ("Networks", ("nn.base", "nn.gather", "models.dt", "models.dm", "models.unimask")),
    "api-masked": ("Inference with masked agents", ("masked.question", "masked.answer", "masked.agent_methods")),
    "api-hub": ("Publishing", ("hub.stage", "hub.card", "hub.publish", "hub.verify", "site.build_site")),
}
_LINK = re.compile(r"(!?)\[([^\]\n]*)\]\(([^()\s#]+)(#[^()\s]*)?\)")
_CELL = re.compile(r"^# %%(?: \[(markdown)\])?.*\n", re.MULTILINE)
_HEAD = re.compile(r"\A# ---\n(?:#.*\n)*?# ---\n")
_TITLE = re.compile(r"<h1>(.*?)<a class=\"headerlink\".*?</h1>", re.DOTALL)


class Doc(NamedTuple):
    """A page of the documentation."""

    name: str
    title: str


def build_docs(
    folder: Path,
    agents: Mapping[str, str],
    parts: Parts = WITH_DOCS,
    on_progress: Callable[[str], None] = lambda _: None,
) -> None:
    """Write `folder` (`docs/` of a site).

    Args:
        agents: id -> page of each agent, relative to `folder`; links to cards lead there.

    Raises:
        ConfigError: agentzoo does not run from a checkout, the extra `docs` is missing, or Sphinx fails.
    """
    root = checkout()
    application = needed("sphinx.application", "docs", "documentation")
    needed("myst_parser", "docs", "documentation")
    on_progress("the documentation")
    with tempfile.TemporaryDirectory() as place:
        source, built = Path(place) / "source", Path(place) / "built"
        docs = write_sources(root, source, agents)
        _run_sphinx(application, source, built)
        folder.mkdir(parents=True, exist_ok=True)
        if (built / "_images").is_dir():
            shutil.copytree(built / "_images", folder / "_images", dirs_exist_ok=True)
        titles = [(doc.name, doc.title) for doc in docs]
        groups = [("Guide", titles[: len(GUIDES)]), ("Notebooks", titles[len(GUIDES) :][: len(NOTEBOOKS)])]
        groups.append(("API", titles[len(GUIDES) + len(NOTEBOOKS) :]))
        for doc in docs:
            body = _TITLE.sub(r"<h1>\1</h1>", read_text(built / f"{doc.name}.html"), count=1)
            body = body.replace("<pre>", '<pre tabindex="0">')  # long lines scroll, by keyboard too
            facts = {"body": Markup(body), "groups": groups, "doc": doc, "parts": parts}
            write_atomic(
                folder / f"{doc.name}.html", page("docs.html.j2", f"{doc.title} · agentzoo", PAGE, "../", **facts)
            )


def checkout() -> Path:
    """The folder of the READMEs.

    Raises:
        ConfigError: agentzoo is installed without them.
    """
    import agentzoo

    root = Path(str(agentzoo.__file__)).parents[1]
    missing = [name for name in (*GUIDES.values(), *NOTEBOOKS.values()) if not (root / name).is_file()]
    if missing:
        raise ConfigError(f"documentation is made from a checkout of agentzoo; {root} lacks {missing[0]}.")
    return root


def write_sources(root: Path, source: Path, agents: Mapping[str, str]) -> list[Doc]:
    """Write Sphinx's input; returns the pages in order."""
    source.mkdir(parents=True)
    docs = []
    for name, file in GUIDES.items():
        text = relinked(read_text(root / file), (root / file).parent, root, source, agents)
        docs.append(_write(source, name, text))
    for name, file in NOTEBOOKS.items():
        docs.append(_write(source, name, as_markdown(read_text(root / file))))
    for name, (title, modules) in API.items():
        docs.append(_write(source, name, _reference(title, modules)))
    return docs


def _write(source: Path, name: str, text: str) -> Doc:
    (source / f"{name}.md").write_text(text, encoding="utf-8")
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return Doc(name, found[1].strip() if found else name)


def _reference(title: str, modules: tuple[str, ...]) -> str:
    parts = [f"# {title}\n"]
    for name in modules:
        importlib.import_module(f"agentzoo.{name}")  # a missing module raises here instead of a warning by Sphinx
        directive = f".. automodule:: agentzoo.{name}\n   :members:\n   :member-order: bysource\n"
        parts.append(f"## `agentzoo.{name}`\n\n```{{eval-rst}}\n{directive}```\n")
    return "\n".join(parts)


def as_markdown(script: str) -> str:
    """A Jupytext script in percent format as Markdown, with its code between fences."""
    parts = _CELL.split(_HEAD.sub("", script))
    found = []
    for kind, cell in zip(parts[1::2], parts[2::2], strict=True):
        if kind == "markdown":
            found.append(re.sub(r"^# ?", "", cell, flags=re.MULTILINE).strip())
        elif cell.strip():
            found.append(f"```python\n{cell.strip()}\n```")
    return "\n\n".join(found) + "\n"


def relinked(text: str, here: Path, root: Path, source: Path, agents: Mapping[str, str]) -> str:
    """A README with its relative links rewritten to pages of the site. Pictures are copied, other links become text.

    Args:
        here: the folder of the README.
        source: the folder for the pictures.
    """
    pages = {(root / file).resolve(): f"{name}.md" for name, file in GUIDES.items()}
    pages |= {(root / file).resolve(): f"{name}.md" for name, file in NOTEBOOKS.items()}

    def leads(found: re.Match[str]) -> str:
        picture, words, target, anchor = found.groups()
        if re.match(r"\w+:", target):
            return found[0]
        path = (here / target).resolve()
        if picture:
            if not path.is_relative_to(root.resolve()) or not path.is_file():
                return words
            shutil.copyfile(path, source / path.name)
            return f"![{words}]({path.name})"
        path = path / "README.md" if path.is_dir() else path
        if path in pages:
            return f"[{words}]({pages[path]}{anchor or ''})"
        if path.parent.name in agents and path.name == "README.md":
            return f'<a href="{agents[path.parent.name]}">{words.strip("`")}</a>'
        return '<a href="../index.html">agents</a>' if path == (root / "hub_cards" / "README.md") else words

    return _LINK.sub(leads, text)


def _run_sphinx(application: object, source: Path, built: Path) -> None:
    """Write the body of each page to an HTML file in `built`.

    Raises:
        ConfigError: Sphinx raised an error.
    """
    (source / "_layout").mkdir()
    (source / "_layout" / "page.html").write_text("{{ body }}", encoding="utf-8")
    settings = {
        "project": "agentzoo",
        "extensions": ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"],
        "exclude_patterns": [],
        "templates_path": ["_layout"],
        "html_theme": "basic",
        "html_copy_source": False,
        "html_use_index": False,
        "html_permalinks": False,
        "myst_heading_anchors": 3,
        "suppress_warnings": ["toc.not_included", "myst.header", "myst.xref_missing", "autodoc"],
        "autodoc_typehints": "description",
        "autodoc_class_signature": "separated",
        "autodoc_default_options": {"exclude-members": "model_config, model_post_init"},
        "nitpicky": False,
        "smartquotes": False,
        "default_role": "code",
    }
    log = io.StringIO()
    before = logging.getLogger().level
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Sphinx and its extensions warn about each other
            sphinx = application.Sphinx(  # type: ignore[attr-defined]
                str(source), None, str(built), str(built.parent / "doctrees"), "html", settings,
                status=None, warning=log, freshenv=True,
            )  # fmt: skip
            sphinx.build(force_all=True)
    except Exception as error:  # Sphinx raises its own errors and those of imported modules
        raise ConfigError(f"Sphinx could not make the documentation: {type(error).__name__}: {error}") from error
    finally:
        logging.getLogger().setLevel(before)
    if sphinx.statuscode:
        raise ConfigError(f"Sphinx could not make the documentation: {log.getvalue()[-500:]}")
