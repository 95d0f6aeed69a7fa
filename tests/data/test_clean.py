import html
import lzma
import os
import pathlib
import re
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anisoscope.data import clean

WIKITEXT = {
    "plain text": (
        "A plain sentence, (with) a [note] & 2 < 3 > 1.",
        "A plain sentence, (with) a [note] & 2 < 3 > 1.",
    ),
    "links": ("[[cat]]s, [[Cat (animal)|cats]] and [[dog|]]", "cats, cats and dog"),
    "link with pipes in its label": ("[[a|b|c]]", "b|c"),
    "link shown by a colon": ("see [[:Category:Cats]]", "see Category:Cats"),
    "nested links in a caption": (
        "[[Image:Cat.jpg|thumb|A [[cat]] by [[Artist (painter)|the artist]], [[1900]]]]The cat sat.",
        "The cat sat.",
    ),
    "media in every spelling": (
        "a[[File:x.png]]b[[image:y.gif|left|c]]d[[ Media : z.ogg|e]]f",
        "abdf",
    ),
    "template in a caption": ("[[Image:x.jpg|thumb|{{small|a [[b]]}} c]]d", "d"),
    "categories and other languages": (
        "a\n\n[[Category:Cats|*]]\n[[category:Pets]]\n[[de:Katze]]\n[[zh-min-nan:Niau]]\n[[simple:Cat]]",
        "a",
    ),
    "prefix that is no language": (
        "[[WP:CAT]] and [[Star Trek: Voyager]]",
        "WP:CAT and Star Trek: Voyager",
    ),
    "addresses": (
        "[http://a.b/c the page] and [http://a.b/c] and http://a.b/c",
        "the page and  and http://a.b/c",
    ),
    "address around a link": ("[https://a.b my [[dog|cat]] [PDF] file]", "my cat [PDF] file"),
    "address without end": ("[http://a.b my cat", "my cat"),
    "nested templates": ("a{{b|{{c|{{d}}}}|[[e|f]]}}g", "ag"),
    "template over several paragraphs": ("{{Infobox\n|a = 1\n\n|b = {{c|}}\n}}\nText", "Text"),
    "table": (
        'Before\n\n{| class="wikitable"\n|-\n! a !! b\n|-\n| [[c]] || d\n\ne\n|}\n\nAfter',
        "Before\n\nAfter",
    ),
    "nested and indented tables": ("a\n:{|\n| x\n  {|\n| y\n|}\n| z\n|}\nb", "a\n\nb"),
    "HTML table": ("a<table border=1><tr><td>b<TABLE><tr></tr></TABLE></td></tr></table>c", "ac"),
    "bars that are no table": ("the set {|x| < 1} and |} here", "the set {|x| < 1} and |} here"),
    "comments": ("a<!-- b [[c\n\n{{d -->e<!---->f", "aef"),
    "references": ('a<ref>b {{cite}}</ref>c<ref name="d" />e<ref name=f>g</ref>.', "ace."),
    "reference that closes itself": ("a<ref name=b />c</ref>d", "acd"),
    "template that ends like a table": ("{{Infobox\n|a\n|}}Text", "Text"),
    "line ends of other systems": ("[[Image:a\r\n\r\nb]] c", "Image:a\n\nb c"),
    "code": (
        "a<math>\\frac{{x}}{{y}}</math>b<code>c</code>d<pre>\n{{e\n</pre>f<NoWiki>[[</nowiki>g",
        "abdfg",
    ),
    "markup inside code": ("a<nowiki><!-- <math> {{ </nowiki>b<!-- <nowiki> -->c", "abc"),
    "tags": (
        'a<br>b<br />\nc<b class="x\ny">d</b> H<sub>2</sub>O <FONT color=red>e</FONT>',
        "a\nb\ncd H2O e",
    ),
    "tags nobody knows": ("<module> and x<y and z>w", "<module> and x<y and z>w"),
    "quotes": ("'''''a''''' ''b'' '''c''' d's 'e'", "a b c d's 'e'"),
    "headings": ("== A ==\nb\n===C [[d]]===\n=e=\nf = g == h", "A\nb\nC d\ne\nf = g == h"),
    "indents, rules, empty items": (":a\n:: b\n----\n* c\n*\n#\n;d\n__NOTOC__\n", "a\nb\n* c\nd"),
    "entities": (
        "&quot;a&quot;&nbsp;&mdash; &#945;&#x3b2; &eacute; &unknown; AT&T",
        '"a" — αβ é &unknown; AT&T',
    ),
    "entities twice": ("a&amp;nbsp;b &amp;amp;lt; c &amp; d", "a b < c & d"),
    "entities that spell markup": (
        "a&lt;math&gt;b&lt;/math&gt;c&amp;lt;br&amp;gt;d &#91;[e|f]]",
        "ac\nd f",
    ),
    "control characters": ("a&#0;b&#1;c&#13;d\r\ne", "a\N{REPLACEMENT CHARACTER}bcd\ne"),
    "blank lines and line ends": ("\n\n a  \n\n\n\n  b\t\nc\n\n", " a\n\n  b\nc"),
    "markup left by what is removed": ("[{{x}}[a|b]] '{{y}}' <{{z}}b>c", "a|b  c"),
}
UNBALANCED = {  # markers without a partner swallow nothing
    "link": ("[[a|b\n\nnext ]] last", "a|b\n\nnext  last"),
    "caption": ("[[Image:x|thumb|a [[b]] c\n\nnext", "Image:x|thumb|a b c\n\nnext"),
    "template": ("{{a b\n\nnext {{c}} last", "a b\n\nnext  last"),
    "closing": ("a]] b}} c\n|}\nd</table></math>", "a b c\n\nd"),
    "table": ("{|\n| a\n\nnext\n\n{|\n| b\n|}\nlast", "next\n\nlast"),
    "comment": ("a<!-- b\n\nnext <!-- c --> last", "a b\n\nnext  last"),
    "code": ("a<math>b\n\nnext <math>c</math> last <nowiki>d", "ab\n\nnext  last d"),
    "link closed in a template": ("[[a {{b]] c}} d", "a  d"),
    "overlap": ("{{a [[b}}c]] d", "c d"),
    "tag": ("a <b c\n\nd > e", "a <b c\n\nd > e"),
}


@pytest.mark.parametrize(("text", "expected"), [*WIKITEXT.values(), *UNBALANCED.values()])
def test_wikitext(text, expected):
    assert clean.clean(text.encode()).decode() == expected


def dump(*pages: tuple[str, str]) -> bytes:
    text = '<mediawiki version="0.3">\n  <siteinfo>\n    <sitename>Wikipedia</sitename>\n  </siteinfo>\n'
    for number, (title, body) in enumerate(pages):
        text += f"  <page>\n    <title>{title}</title>\n    <id>{number}</id>\n    <revision>\n"
        text += "      <timestamp>2006-03-03T00:00:00Z</timestamp>\n      <comment>typo [[x]]</comment>\n"
        text += f'      <text xml:space="preserve">{html.escape(body)}</text>\n    </revision>\n  </page>\n'
    return (text + "</mediawiki>\n").encode()


def test_dump_keeps_titles_and_texts():
    pages = dump(
        ("Cat &amp; dog", "The '''cat''' {{open\n\nof <math>x</math>&nbsp;old."),
        ("CaT", "#REDIRECT [[Cat]]"),
        ("Empty", ""),
        ("Dog", "A [[dog]]}}."),
    )
    assert clean.clean(pages) == b"Cat & dog\n\nThe cat open\n\nof  old.\n\nDog\n\nA dog."


def test_parts_of_a_dump():
    pages = dump(("Cat", "The [[cat]]."), ("Dog", "The <b>dog</b>."))
    assert clean.clean(pages[: pages.index(b"dog")]) == b"Cat\n\nThe cat.\n\nDog\n\nThe"
    assert clean.clean(pages[: pages.rindex(b"<revision>")]) == b"Cat\n\nThe cat."
    assert clean.clean(pages[pages.index(b"[[cat") :]) == b"cat.\n\nDog\n\nThe dog."


def test_page_longer_than_a_unit():
    pages = dump(("Cat", "The [[cat]] sat.\n\n" * 40), ("Dog", "The dog."))
    whole = clean.clean(pages)
    assert whole == b"Cat\n\n" + b"The cat sat.\n\n" * 40 + b"Dog\n\nThe dog."
    with mock.patch.object(clean, "UNIT", 400):
        assert clean.clean(pages) == whole


PAIRS = [("{{a ", "}}"), ("[[a ", "]]"), ("\n{|", "\n|}"), ("\n{|", "}}")]
PAIRS += [("<table>", "</table>"), ("<math>", "</math>")]
LONE = ["{{", "[[a ", "[[a|", "<!--", "<math>", "<b ", "[http://a ", "&amp;", "amp;", "&"]
LONE += ["\n=a", "=a", ": "]


@pytest.mark.parametrize(("opening", "closing"), [*PAIRS, *((opening, "") for opening in LONE)])
def test_markers_may_be_as_many_as_they_like(opening, closing):
    """Markers without a partner among them; a pattern that went back over them again and again
    would never end.
    """
    text = f"\n&{opening * 32_000}{closing * 31_000}".encode()
    cleaned = clean.clean(text)
    assert cleaned.startswith(b"&")
    assert clean.clean(cleaned) == cleaned


def test_nesting_beyond_the_limit_is_taken_for_stray_markers():
    assert clean.clean(b"{{a " * clean.DEEPEST + b"}}" * clean.DEEPEST + b"b") == b"b"
    assert clean.clean(b"{{a " * (clean.DEEPEST + 1) + b"}}" * clean.DEEPEST + b"b") == b"b"
    assert clean.clean(b"{{a " * clean.DEEPEST + b"}}" * (clean.DEEPEST - 1) + b"b") == b"a b"


FRAGMENTS = st.sampled_from(
    re.findall(
        r"\S+",
        "[[ ]] {{ }} {| |} | || |- ! [ ] { } < > </ <!-- --> <math> </math> <nowiki> </nowiki> <ref> <ref/> </ref> <b "
        "<br/> <table> </table> <page> </page> <title> </title> <revision> </revision> </text> & &amp; &lt; &gt; &#91; "
        "&#93; &#10; &#13; &#39; &nbsp; amp; lt; ' '' ''' = == * : ; # - ---- __TOC__ Image: Category: de: http:// "
        "[http://x a é #REDIRECT",
    )
) | st.sampled_from(
    ["\n", "\n\n", " ", "\r", "\t", '<text xml:space="preserve">', "\N{NO-BREAK SPACE}"]
)
TEXTS = st.lists(FRAGMENTS, max_size=40).map(lambda fragments: "".join(fragments).encode())


@settings(max_examples=200, deadline=None)
@given(TEXTS | st.binary(max_size=300), st.sampled_from([16, 64, clean.UNIT]))
def test_idempotent(text, unit):
    with mock.patch.object(clean, "UNIT", unit):
        cleaned = clean.clean(text)
        assert clean.clean(cleaned) == cleaned
    for marker in (b"[[", b"]]", b"{{", b"}}", b"''", b"<!--", b"<page>", b"</math>"):
        assert marker not in cleaned


def test_text_without_pages_is_cut_at_blank_lines():
    text = b"aaaa\n\nbbbb\n\ncccc\n\n" + b"d" * 15 + b"\n\n" + b"e" * 40 + b"\n\nf</page>g"
    with mock.patch.object(clean, "UNIT", 16):
        sizes = []
        cleaned = clean.clean(text, sizes.append)
    parts = [b"aaaa", b"bbbb", b"cccc", b"d" * 15, b"e" * 40, b"f", b"g"]
    assert cleaned == b"\n\n".join(parts)
    assert sizes == [12, 6, 17, 42, 8, 1]


@pytest.mark.skipif(
    "ANISOSCOPE_ENWIK8" not in os.environ, reason="needs the prefix of enwik8 (xz) that CI has"
)
def test_real_prefix_of_enwik8():
    text = lzma.decompress(pathlib.Path(os.environ["ANISOSCOPE_ENWIK8"]).read_bytes())
    cleaned = clean.clean(text)
    assert clean.clean(cleaned) == cleaned
    for marker in re.findall(
        r"\S+",
        "[[ ]] {{ }} {| |} |- '' <text <page <math <ref <br <!-- thumb| &lt; &gt; &amp; &quot;",
    ):
        assert marker.encode() not in cleaned, marker
    for rest, at_most in ((b"<", 1), (b"|", 40), (b"http://", 30), (b"==", 8), (b"{", 2)):
        assert cleaned.count(rest) <= at_most, rest
    assert cleaned.startswith(
        b"Anarchism\n\nAnarchism originated as a term of abuse first used against early working class"
    )
    assert b"The word anarchism is derived from the Greek" in cleaned
    assert 0.65 < len(cleaned) / len(text) < 0.75
    letters = sum(cleaned.count(bytes([value])) for value in b" abcdefghijklmnopqrstuvwxyz")
    assert letters / len(cleaned) > 0.88
