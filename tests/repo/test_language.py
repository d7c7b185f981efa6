"""Text of the product is plain technical English: machines report, return and count; they do not tell, hear or know.

`python tests/repo/test_language.py` lists the places.
"""

import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

PRODUCT = ("master", "nodes", "traffic", "lab", "pktswarm", "kernel", "docs", "ansible", "configs", "hosts", "results")
PAGES = ("README.md", "CONTRIBUTING.md", "bootstrap", "CHANGELOG.md", "bench/README.md")
WORDS = re.compile(
    r"\b(?:told|tells?|telling|hears?|heard|whom|whose business|his|himself)\b"  # of machines
    r"|\bwho (?:is|are|was|has|have|sends?|sent|receives?|counts?)\b"
    r"|\bwho (?:asks?|came|comes|does|did|waits?|answers?|plays?|holds?)\b"
    r"|\bis no [\w ]{1,30}'s\b"
    r"|(?-i:^Of )",
    re.IGNORECASE,
)
TERMS = re.compile(
    r"\b[kM]?pkts?/s\b|\bpackets per second\b|\bpackets/sec\b"  # packets/s
    r"|\bdup[ls]?\.|\breord\.|\bout[- ]of[- ]order\b"  # duplicated, reordered
    r"|\butilization\b|\bload of (?:the|a|its) link\b"  # utilisation
    r"|#(?:min|max)\b|% of max\b|/ max\b|(?<!-)\bmax \d|\b(?:mean|median|p99)\b[^`|]{0,20}, max\b"  # minimum, maximum
    r"|\breferences? 00\d\b",  # its name: docs/glossary.md
    re.IGNORECASE,
)
"""Words that docs/glossary.md has another word for."""
ALLOWED = (  # the key `told` of two published JSON documents: renaming it would break their readers
    ("ansible/roles/pktswarm/tasks/traffic.yml", "when: (pktswarm_tuned.stdout | from_json).told | length > 0"),
    (
        "ansible/roles/pktswarm/tasks/traffic.yml",
        """msg: "{{ inventory_hostname }}: {{ (pktswarm_tuned.stdout | from_json).told | join('; ') }}\"""",
    ),
    ("nodes/tune.py", 'told"'),
    ("docs/doctor.md", '{"status": …, "hosts": {NAME: {"reachable", "offset_ns", "offset_bound_ns", "told",'),
    ("docs/doctor.md", "`level` is `unreachable`, `wrong` or `note`; `told` is the output of the host's own program"),
    ("master/doctor/show.py", 'told"'),
)


def files() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *PRODUCT, *PAGES], capture_output=True, text=True, check=True).stdout
    paths = [Path(name) for name in listed.split()]
    return [path for path in paths if path.is_file() and not path.is_symlink() and path.name != "LICENSE"]


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and text: of Python comments and strings, of C comments, of pages every line."""
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING):
                for number, line in enumerate(token.string.split("\n"), token.start[0]):
                    yield number, re.sub(r"^[#rfb\"' ]+|\{[^{}]*\}", "", line)
    elif path.suffix in {".c", ".h"}:
        text = path.read_text()
        for found in re.finditer(r"/\*.*?\*/|//[^\n]*", text, re.S):
            start = text.count("\n", 0, found.start()) + 1
            for number, line in enumerate(found[0].split("\n"), start):
                yield number, line.strip("/* \t")
    elif path.suffix in {".md", ".yml", ".yaml", ".html", ".j2", ".css", ".sh", ""}:
        for number, line in enumerate(path.read_text().split("\n"), 1):
            yield number, line.strip("#-*| ")


def names(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and name of the names in code that are a word of the list by themselves."""
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
            if token.type == tokenize.NAME and WORDS.fullmatch(token.string.strip("_")):
                yield token.start[0], token.string


def test_no_name_in_the_code_is_a_word_of_the_list() -> None:
    assert [f"{path}:{number}: {name}" for path in files() for number, name in names(path)] == []


def places() -> list[str]:
    found = []
    for path in files():
        try:
            found += [
                f"{path}:{number}: {line}"
                for number, line in texts(path)
                if (WORDS.search(line) or TERMS.search(line)) and (str(path), line) not in ALLOWED
            ]
        except UnicodeDecodeError:
            continue
    return found


def test_no_text_of_the_product_has_a_word_of_the_list() -> None:
    assert len(files()) > 400
    assert places() == []


@pytest.mark.parametrize(
    "text", ["it is told what", "nobody who sends", "is no trial's", "Of each stream the rate", "a UPF that tells"]
)
def test_the_list_finds(text: str) -> None:
    assert WORDS.search(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "1.2 kpkt/s",
            "pkt/s",
            "packets per second",
            "dupl.",
            "dups.",
            "reord.",
            "received out of order",
            "out-of-order",
        ),
        *("peak utilization", "load of the link", "#min", "'% of max.'", "(p50 / p99 / max)", "mean 3.1, max 4.2"),
        *("Reference 001", "as in reference 004"),
    ],
)
def test_the_list_of_terms_finds(text: str) -> None:
    assert TERMS.search(text)


@pytest.mark.parametrize("text", ["samples.max()", "`max` of a key", "reference", "packets/s", "maximum", "duplicated"])
def test_the_list_of_terms_leaves(text: str) -> None:
    assert not TERMS.search(text)


@pytest.mark.parametrize("text", ["storytelling", "a list of each stream", "the trial's duration", "whole"])
def test_the_list_leaves(text: str) -> None:
    assert not WORDS.search(text)


if __name__ == "__main__":
    print("\n".join(places()))
