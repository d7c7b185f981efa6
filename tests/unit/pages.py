"""Pages of HTML as tests read them."""

from __future__ import annotations

import itertools
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

SCRIPT = Path("master/templates/report.js")
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Page(HTMLParser):
    """A page as a tree flattened: every element with its attributes, those around it, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[dict[str, Any]] = []
        self.elements: list[dict[str, Any]] = []
        self.declared = ""
        self.feed(text)
        self.close()

    def handle_decl(self, decl: str) -> None:
        self.declared = decl

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        one = {"tag": tag, "text": "", "around": list(self.open), **{f"@{name}": value for name, value in attrs}}
        self.elements.append(one)
        if tag not in VOID and not (self.get_starttag_text() or "").endswith("/>"):
            self.open.append(one)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()["tag"] == tag, f"</{tag}> closes something else"

    def handle_data(self, data: str) -> None:
        for one in self.open:
            one["text"] += data

    def all(self, *tags: str) -> list[dict[str, Any]]:
        return [one for one in self.elements if one["tag"] in tags]

    def inside(self, name: str) -> list[dict[str, Any]]:
        """Elements in the one with this id."""
        return [one for one in self.elements if any(each.get("@id") == name for each in one["around"])]

    @property
    def text(self) -> str:
        return " ".join(self.all("body")[0]["text"].split())


def check_nothing_to_fetch_or_run(text: str) -> None:
    """Nothing but the script of a page's plots, which its policy names by its digest; links are to files beside it."""
    page = Page(text)
    assert not page.all("link", "img", "iframe", "object", "embed", "form")
    (policy,) = [one["@content"] for one in page.all("meta") if one.get("@http-equiv") == "Content-Security-Policy"]
    assert "default-src 'none'" in policy
    scripts = page.all("script")
    assert len(scripts) == ("script-src" in policy) >= bool(page.all("svg"))
    for script in scripts:
        assert set(script) == {"tag", "text", "around"} and script["text"] == SCRIPT.read_text()
        assert f"script-src 'sha256-{b64encode(sha256(script['text'].encode()).digest()).decode()}'" in policy
    for one in page.elements:
        for name in ("@src", "@href", "@xlink:href", "@action"):
            to = str(one.get(name, "#"))
            assert to.startswith("#") or (one["tag"] == "a" and re.fullmatch(r"[\w./-]+", to)), one
        assert not [name for name in one if name.startswith("@on")]
    assert not re.search(r"url\((?!#)|@import", text)


def check_accessible(page: Page) -> None:
    """What can be told without a browser; test_accessibility.py has axe look at pages in one."""
    assert page.declared.lower() == "doctype html" and page.all("html")[0]["@lang"] == "en"
    assert page.all("title")[0]["text"] and any(one.get("@name") == "viewport" for one in page.all("meta"))
    levels = [int(one["tag"][1]) for one in page.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert len(page.all("main")) == 1 and page.all("table")
    for table in page.all("table"):
        inner = [one for one in page.elements if table in one["around"]]
        assert [one["text"].strip() for one in inner if one["tag"] == "caption"] != []
        heads = [one for one in inner if one["tag"] == "th"]
        assert heads and {one.get("@scope") for one in heads} <= {"col", "row"}
        columns = [one for one in heads if one["@scope"] == "col"]
        assert columns and all(one["text"] for one in columns if one is not columns[0])
    for svg in page.all("svg"):
        (picture,) = [one for one in svg["around"] if one.get("@role") == "img"]
        assert len(picture["@aria-label"]) > 20 and svg["@aria-hidden"] == "true"
    names = [one["@id"] for one in page.elements if "@id" in one]
    assert len(names) == len(set(names))
    pointed = [one["@href"][1:] for one in page.elements if str(one.get("@href", "")).startswith("#")]
    pointed += [one["@aria-labelledby"] for one in page.elements if "@aria-labelledby" in one]
    assert set(pointed) <= set(names)
