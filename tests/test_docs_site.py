"""The documentation site: pages made from the program are complete; reading it asks nobody."""

import functools
import http.server
import importlib.util
import re
import sys
import threading
from pathlib import Path

import pytest
from browser import browser, needs_browser
from typer.main import get_command

from libra.cli import app
from libra.json_schema import design_schema, space_schema
from libra.models import list_models
from libra.presets import list_presets

ROOT = Path(__file__).resolve().parent.parent


def load_tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFERENCE = load_tool("docs_reference")


@pytest.fixture(scope="module")
def pages():
    return {name: page() for name, page in REFERENCE.PAGES.items()}


def cells(line):
    """Number of cells of a row of a table: bars in code and escaped ones do not count."""
    return len(re.split(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", line))) - 2


@pytest.mark.parametrize("name", REFERENCE.PAGES)
def test_tables_of_a_page_are_whole(name, pages):
    assert pages[name].startswith("# ")
    rows = [line for line in pages[name].splitlines() if line.startswith("| ")]
    assert name == "messages" or len(rows) > 20
    width = 0
    for before, line in zip(
        ["", *pages[name].splitlines()], pages[name].splitlines(), strict=False
    ):
        if line.startswith("| "):
            width = width if before.startswith("| ") else cells(line)
            assert cells(line) == width, line


def test_every_key_of_a_file_is_on_its_page(pages):
    for page, schema in ((pages["design"], design_schema()), (pages["space"], space_schema())):
        for owner in (schema, *schema["definitions"].values()):
            for key in owner.get("properties", {}):
                assert f"`{key}`" in page, key
        links = set(re.findall(r"\(#([\w-]+)\)", page))
        assert links == set(re.findall(r"\{#([\w-]+)\}", page)) & links


def test_every_command_and_option_is_on_the_page_of_commands(pages):
    for name, command in get_command(app).commands.items():
        (section,) = re.findall(rf"^## libra {name}\n(.*?)(?=^## |\Z)", pages["cli"], re.M | re.S)
        assert command.help.splitlines()[0] in section
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert all(word in section for word in parameter.opts), (name, parameter.opts)


def test_every_preset_is_on_the_page_of_presets_with_its_source(pages):
    for kind in ("networks", "accelerators", "prices", "power"):
        for row in list_presets(kind):
            assert f"`{row['name']}`" in pages["presets"]
    lines = [line for line in pages["presets"].splitlines() if line.startswith("| `")]
    assert len(lines) > len(list_models()) > 30
    assert all(line.rsplit("|", 2)[1].strip() for line in lines)


def test_messages_are_those_of_the_table(pages):
    table = (ROOT / "tests" / "data" / "bad_designs.txt").read_text("utf-8")
    messages = re.findall(r"^=> (.*)$", table, re.MULTILINE)
    assert messages
    assert all(message in pages["messages"] for message in messages)


def test_outputs_are_renewed_in_the_shape_of_the_page():
    renewed = load_tool("renew_docs").renewed
    printed = "head\n\n a  1.5 s\n b  2.5 s\ntail 7\n"
    assert renewed("head\n…\n b  1 s\n…\n", printed) == "head\n…\n b  2.5 s\n…\n"
    assert renewed("…\ntail 6\n", printed) == "…\ntail 7\n"
    assert renewed("other\n", printed) == printed


@needs_browser
def test_reading_the_site_makes_no_request_beyond_it(tmp_path):
    pytest.importorskip("mkdocs", reason="needs mkdocs, of the docs extra")
    import subprocess

    # In a process of its own: what mkdocs imports warns.
    build = [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", "--strict", "--quiet"]
    subprocess.run([*build, "-d", str(tmp_path)], cwd=ROOT, check=True, capture_output=True)
    for file in tmp_path.rglob("*.html"):
        loaded = r'<(?:script|img|iframe|link rel="(?:stylesheet|preload|icon)")[^>]*(?:src|href)="'
        assert re.findall(loaded + r"(?:https?:)?//", file.read_text("utf-8")) == [], file
    handler = functools.partial(Quiet, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home = f"http://127.0.0.1:{server.server_port}/"
    complaints = []
    try:
        with browser() as running:
            pages = ("plots/", "reference/design/", "how-to/price-list/", "python/", "")
            for scheme, names in (("dark", ("plots/",)), ("light", pages)):
                page = running.new_context(color_scheme=scheme).new_page()
                page.on("pageerror", lambda error: complaints.append(str(error)))
                page.on(
                    "console",
                    lambda m: complaints.append(m.text) if m.type in ("error", "warning") else 0,
                )
                page.on(
                    "request",
                    lambda r: (
                        complaints.append(r.url)
                        if not r.url.startswith((home, "data:", "blob:"))
                        else 0
                    ),
                )
                for name in names:
                    page.goto(home + name, wait_until="networkidle")
                    assert page.title()
            # Keys, not fill(): the search listens to keys, and once to its worker being ready.
            page.locator("input.md-search__input").press_sequentially("infeasible")
            page.wait_for_selector(".md-search-result__item", timeout=60_000)
    finally:
        server.shutdown()
        server.server_close()
    assert complaints == []


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, *arguments):
        """Say nothing."""
