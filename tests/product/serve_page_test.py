"""The page of a served demo model, in a real browser; the pictures of docs/serving.md are this test's outputs."""

import os
from pathlib import Path

import pytest

from tapeline.server._browser_testing import CHROMIUM, Browser, browsing
from tests.product._bundles import export
from tests.product._serving import serving

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="this machine has no Chromium: Debian's package is chromium")

_PROMPT = "It was the best of times,"
_DONE = "!at('send').hidden && document.querySelectorAll('.figures').length === 1"
_READY = "document.readyState === 'complete' && document.querySelectorAll('#model option').length === 1"


def _ask(page: Browser, url: str, width: int, *, dark: bool) -> None:
    """Opens the page and has the prompt answered."""
    page.open(url, width, 780, dark=dark)
    page.wait(_READY)
    for name, value in (("temperature", "0"), ("max_tokens", "70")):
        page.run(f"at('{name}').value = '{value}'; at('{name}').dispatchEvent(new Event('change'))")
    page.run("at('text').focus()")
    page.type(_PROMPT)
    page.press_enter()
    page.wait(_DONE, 60)


def test_pictures_of_the_page(tmp_path: Path) -> None:
    pictures = Path(os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR") or tmp_path)
    bundle = export("demo", tmp_path / "demo", sequence=8, slots=2, max_sequence=512)
    template = tmp_path / "template"
    template.write_text("{% for message in messages %}{{ message.content }}{% endfor %}")
    with (
        serving(tmp_path / "server", f"--bundle={bundle}", f"--chat_template={template}") as server,
        browsing(tmp_path / "profile") as page,
    ):
        url = f"http://127.0.0.1:{server.port}/"
        _ask(page, url, 1100, dark=False)
        assert "it was the worst of times" in page.run("document.querySelectorAll('.turn')[1].textContent")
        page.screenshot(pictures / "serve_page.png")
        _ask(page, url, 390, dark=True)
        page.run("at('open').click()")
        page.screenshot(pictures / "serve_page_phone.png")
    assert all((pictures / name).stat().st_size > 5000 for name in ("serve_page.png", "serve_page_phone.png"))
