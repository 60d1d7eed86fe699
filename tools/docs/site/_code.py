"""Code of the pages, as HTML."""

import re
from typing import Final

_SHELL: Final = re.compile(r'<div class="language-(?:sh|bash|console) highlight">.*?</div>', re.DOTALL)
_FLAG: Final = re.compile(r'(?<=[>\s])(--?[A-Za-z][\w-]*+(?:<span class="o">=</span>|(?=[<\s])))')


def keep_flags_whole(page: str) -> str:
    """Returns a page's HTML with the flags of shell commands in elements, in which the style sheet breaks no line.

    >>> keep_flags_whole('<div class="language-sh highlight"><code><span> </span>--port</code></div>')
    '<div class="language-sh highlight"><code><span> </span><span class="flag">--port</span></code></div>'
    >>> keep_flags_whole('<div class="language-sh highlight"> --n<span class="o">=</span>1</div>')
    '<div class="language-sh highlight"> <span class="flag">--n<span class="o">=</span></span>1</div>'
    """
    return _SHELL.sub(lambda block: _FLAG.sub(r'<span class="flag">\1</span>', block[0]), page)
