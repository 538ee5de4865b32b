"""Encodings: decode bytes by the encoding that they declare or, if none, by a guess."""

import codecs
import re

from kbq.errors import KbqError

MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
LOOKED_AT = 2**16  # bytes that a guess is made by
# Likely ones, the most likely first; others resemble these, and would be guessed for short texts.
LIKELY = [
    "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "shift_jis", "gb18030", "big5", "euc_kr",
    "euc_jp",
]  # fmt: skip
SHORT = 12  # letters that are not ASCII, below which only the most likely one is taken
# Browsers read pages that declare these as what most of them are in truth. Source:
# encoding.spec.whatwg.org.
_MEANT = {
    "iso8859-1": "cp1252",
    "ascii": "cp1252",
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
}


def decode(content: bytes, declared: str = "", wanted: str = "") -> tuple[str, str]:
    """Return a text, and the encoding that was guessed for it, or "" if none had to be.

    Args:
        content: a whole text, perhaps with a byte order mark.
        declared: the encoding that its own format states; an unknown one counts as none.
        wanted: the one that the user states.

    Raises:
        KbqError: `wanted` is unknown, or the text is not in it.

    >>> decode("Café".encode("utf-16")), decode(b"Caf\\xe9"), decode(b"Caf\\xe9", "iso-8859-1")
    (('Café', ''), ('Café', 'cp1252'), ('Café', ''))
    """
    if wanted:
        check_encoding(wanted)
        try:
            return content.decode(wanted).removeprefix("\ufeff"), ""
        except UnicodeDecodeError as reason:
            raise KbqError(
                f"it is not in {wanted} (byte {reason.start + 1:,}): choose another --encoding"
            ) from None

    for mark, name in MARKS.items():
        if content.startswith(mark):
            return content.decode(name, "replace").removeprefix("\ufeff"), ""

    wide = _wide(content[:LOOKED_AT])
    if wide and not declared:
        return content.decode(wide, "replace"), wide
    for name in filter(None, (_known(declared), "utf-8")):
        try:
            return content.decode(name), ""
        except UnicodeDecodeError:
            continue

    guess = guessed(content)
    return content.decode(guess, "replace"), guess


def check_encoding(name: str) -> None:
    if not _known(name):
        raise KbqError(
            f"the encoding {name!r} is unknown: write one such as utf-8, windows-1252 or utf-16"
        )


def _known(name: str) -> str:
    try:
        found = None
        if name.strip():
            found = codecs.lookup(name.strip())
    except (LookupError, ValueError):
        return ""
    if found is None or not found._is_text_encoding:
        return ""
    return _MEANT.get(found.name, found.name)


def _wide(head: bytes) -> str:
    """Return the encoding of two or four bytes a letter whose zeros a text has, or "" if it has
    few.

    >>> [_wide("Ann Lee".encode(name)) for name in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be", "utf-8")]
    ['utf-16-le', 'utf-16-be', 'utf-32-le', 'utf-32-be', '']
    >>> _wide(b"\\0Ann Le"), _wide(b"\\0Ann Lee")
    ('utf-16-be', '')
    """
    zeros = [head[place::4].count(0) for place in range(4)]
    if 8 * sum(zeros) <= len(head):
        return ""
    if min(zeros[1], zeros[2]) > len(head) / 8:  # the middle of four
        if zeros[0] > zeros[3]:
            return "utf-32-be"
        return "utf-32-le"
    if zeros[0] + zeros[2] > zeros[1] + zeros[3]:
        return "utf-16-be"
    return "utf-16-le"


def guessed(content: bytes) -> str:
    """Return the most likely encoding of a text that is not UTF-8."""
    head = content[:LOOKED_AT]
    wide = _wide(head)
    if wide:
        return wide
    if len(re.findall(rb"[\x80-\xff]", head)) < SHORT:
        return LIKELY[0]
    from charset_normalizer import from_bytes  # imported on demand: most texts are UTF-8

    best = from_bytes(head, cp_isolation=LIKELY).best()
    return best.encoding if best else LIKELY[0]
