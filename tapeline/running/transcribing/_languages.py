"""Languages of Whisper."""

from typing import Final

_NAMES: Final = """
en english, zh chinese, de german, es spanish, ru russian, ko korean, fr french, ja japanese, pt portuguese,
tr turkish, pl polish, ca catalan, nl dutch, ar arabic, sv swedish, it italian, id indonesian, hi hindi, fi
finnish, vi vietnamese, he hebrew, uk ukrainian, el greek, ms malay, cs czech, ro romanian, da danish, hu
hungarian, ta tamil, no norwegian, th thai, ur urdu, hr croatian, bg bulgarian, lt lithuanian, la latin, mi
maori, ml malayalam, cy welsh, sk slovak, te telugu, fa persian, lv latvian, bn bengali, sr serbian, az
azerbaijani, sl slovenian, kn kannada, et estonian, mk macedonian, br breton, eu basque, is icelandic, hy
armenian, ne nepali, mn mongolian, bs bosnian, kk kazakh, sq albanian, sw swahili, gl galician, mr marathi, pa
punjabi, si sinhala, km khmer, sn shona, yo yoruba, so somali, af afrikaans, oc occitan, ka georgian, be
belarusian, tg tajik, sd sindhi, gu gujarati, am amharic, yi yiddish, lo lao, uz uzbek, fo faroese, ht haitian
creole, ps pashto, tk turkmen, nn nynorsk, mt maltese, sa sanskrit, lb luxembourgish, my myanmar, bo tibetan,
tl tagalog, mg malagasy, as assamese, tt tatar, haw hawaiian, ln lingala, ha hausa, ba bashkir, jw javanese,
su sundanese, yue cantonese
"""

_OTHER_NAMES: Final = """
my burmese, ca valencian, nl flemish, ht haitian, lb letzeburgesch, ps pushto, pa panjabi, ro moldavian, ro
moldovan, si sinhalese, es castilian, zh mandarin
"""


def _pairs(text: str) -> dict[str, str]:
    """Returns the code of each name in a list."""
    entries = (entry.split(maxsplit=1) for entry in text.replace("\n", " ").split(","))
    return {name.strip(): code for code, name in entries}


_CODES: Final = _pairs(_NAMES)
_ALL_CODES: Final = _CODES | _pairs(_OTHER_NAMES)

LANGUAGES: Final = {code: name for name, code in _CODES.items()}
"""Name of each language by its code."""


def language_code(language: str) -> str:
    """Returns the code of a language, given as a code, a name or a token's name; unknown languages stay.

    >>> [language_code(language) for language in ("English", "<|de|>", "fr", "castilian", "elvish")]
    ['en', 'de', 'fr', 'es', 'elvish']
    """
    wanted = language.strip().lower().removeprefix("<|").removesuffix("|>")
    return _ALL_CODES.get(wanted, wanted)
