"""Pages in headless Chromium, the network cut off."""

import shutil
from contextlib import contextmanager

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="needs Chromium: apt-get install chromium"
)


@contextmanager
def browser():
    """A browser; skips where its driver is not installed."""
    driver = pytest.importorskip(
        "playwright.sync_api", reason="needs playwright, of the test extra"
    )
    with driver.sync_playwright() as playwright:
        # The sandbox needs rights that a container's root does not have; the pages are our own.
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield running
        finally:
            running.close()


@contextmanager
def opened(running, path, fragment="", **options):
    """Page of a file, and what it complained about or asked the network for."""
    context = running.new_context(offline=True, **options)
    page, complaints = context.new_page(), []
    page.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else 0)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request",
        lambda request: (
            complaints.append(request.url)
            if not request.url.startswith((path.as_uri(), "data:"))
            else 0
        ),
    )
    page.goto(path.as_uri() + fragment)
    try:
        yield page, complaints
    finally:
        context.close()
