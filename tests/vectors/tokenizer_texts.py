"""Texts that are hard for tokenizers: written by hand, or drawn from Unicode's blocks with a fixed seed.

Only characters of Unicode 14 are drawn, without surrogates, because the tables of Python, PCRE2 and the oracle agree on
those.
"""

import random
import unicodedata

PROSE = """The penstock carries water from the reservoir to the turbine. When the gate opens, pressure becomes motion.
It's what we've always done: they'll measure the flow, I'd write it down, you're to check it, and he's the one who can't.
IT'S WHAT WE'VE DONE: THEY'LL SEE, I'D SAY; YOU'RE NEXT AND I'M LAST. don't Don'T 'sudden 'tis rock'n'roll
A mill-race is 2.5 m wide, 120 m long; 1,234,567 litres pass in 3 min 45 s. Call +41 44 555 01 23 or 0x7fff_ffff.
for (int i = 0; i < n; i++) {\n\tsum += values[i] * weights[i];\n    if (sum > limit) return -1;  // too much\n}\n
def area(r):\n    \"\"\"Surface of a disc.\"\"\"\n    return 3.14159 * r ** 2\n\n\nprint(f"{area(2):.3f}")\n
<p class="x">Tom &amp; Jerry</p>\n{"key": [1, 2.0, -3e+10, null, true], "text": "a\\\\nb\\u00e9"}
SELECT name, COUNT(*) FROM gates WHERE open = 1 GROUP BY name HAVING COUNT(*) > 10;
Le débit de l'eau n'est pas constant ; l'été, où la rivière est basse, on s'arrête. Ça va? Œuvre, naïve, façade.
Die Größe der Schütze muß stimmen: Übermaß, Öffnung, Straßenbahnhaltestelle, Donaudampfschifffahrtsgesellschaft.
El niño comió piñas mañana; ¿qué pasó? ¡Nada! Århus, smørrebrød, þing, łódź, žluťoučký kůň, İstanbul, ışık.
Вода течёт вниз по трубе, и турбина вращается. Η πίεση αυξάνεται με το ύψος. Ջուրը հոսում է։ წყალი მიედინება.
水从高处流下，推动水轮机转动。発電所では、水の流れがタービンを回します。수압관은 물을 터빈으로 보냅니다.
الماء يجري في الأنبوب ويدير التوربين. המים זורמים בצינור ומסובבים את הטורבינה. آب در لوله جاری است.
पानी नली से बहता है और टरबाइन घूमती है। জল পাইপ দিয়ে বয়ে যায়। தண்ணீர் குழாய் வழியாக ஓடுகிறது. น้ำไหลผ่านท่อ
"""

WRITTEN = [
    "", " ", "  ", "   ", "\n", "\n\n", "\n\n\n", "\t", "\t\t", "\r\n", "\r\n\r\n", "\r", " \n", "\n ", " \n ",
    "  \n  \n", "\t \t \n", "a\n\n\nb", "a \n b", "a  \n\n  b", "a   b", "a    b", "   a", "a   ", "\n\na", "a\n\n",
    " \t\n\r\v\f", "\v", "\f", "\x85", "\u00a0", "\u00a0\u00a0a", "a\u00a0b", "\u2028", "\u2029x", "\u3000", "\u3000\u3000漢",
    "\u180e", "a\u180eb", " \u180e ", "\u200b", "a\u200bb", "\u2003\u2003x", "\u1680x", "\u202fx", "\u205f", "\ufeff", "\ufeffabc",
    "x" * 40, "x" * 41, "x" * 100, "ab" * 50, " " * 39, " " * 40, " " * 41, " " * 100, "\n" * 64, "\t" * 33, "=" * 80, "-" * 77,
    "a" + " " * 50 + "b", "a" + "\n" * 20 + "b", " \n" * 20, "  \n" * 10 + "x", "\t\n" * 9,
    "1", "12", "123", "1234", "12345", "1234567890", "  12", "a  12", "a 12", "a12b", "12a", "1 2", "1  2", "1\n2", "  1  2  ",
    "3.14", "1,000", "1e-9", "0xFF", "v1.2.3", "½", "²³", "x²", "Ⅳ", "①②", "٣٤٥", "१२३", "一二三", "1½", "a½b", "𝟏𝟐𝟑", "〇",
    "'s", "'S", "it's", "IT'S", "it'S", "'ſ", "it'ſ", "'t", "'re", "'RE", "'rE", "'ve", "'m", "'ll", "'LL", "'lL", "'d", "'D", "' s",
    "''s", "'''", "'", "'x", "'sx", "'stop", "he'll've", "y'all'd've", "l'été", "’s", "it’s", "'1", "a'1", " 's", "  's", "\n's",
    "!", "!!", "!?", "...", " ...", "...\n", "!\n\n", " !\r\n", "/", "//", "/\n", "a/b", "/*\n*/", "#", "##", "@x", "$5", "€5", "_", "__a", "a_b",
    "-a", " -a", "(a)", "[a]", "{a}", "\"a\"", "a,b", "a, b", "a;b", "`a`", "~", "^", "|", "\\", "\\n", "&amp;", "%d", "*", "**a**", "+", "<", ">",
    "HelloWorld", "helloWorld", "HELLOWorld", "XMLHttpRequest", "iPhone", "McDonald", "ÀÉÎ", "Àéî", "ÉTÉ été", "ǅ", "ǅa", "aǅ", "ʰa", "ªº", "ﬁ", "ŉ",
    "é", "e\u0301", "E\u0301", "a\u0301\u0327", "a\u0327\u0301", "\u0301", " \u0301", "\u0301\u0301\u0301", "q\u0323\u0307", "q\u0307\u0323",
    "\u1e9b\u0323", "\u212b", "\u2126", "\u0344", "한국어", "\u1112\u1161\u11ab", "각", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u0958", "\u2adc", "\U0001d15e", "\ufb1d",
    "क्षि", "नमस्ते", "ที่", "မြန်မာ", "ខ្មែរ", "བོད་", "ગુજરાતી", "తెలుగు", "ಕನ್ನಡ", "മലയാളം", "සිංහල", "ລາວ", "አማርኛ", "ᏣᎳᎩ", "ᓀᐦᐃᔭᐍᐏᐣ", "ⵜⵉⴼⵉⵏⴰⵖ",
    "漢字かな交じり文", "カタカナ", "ｶﾀｶﾅ", "中文。", "，。！？", "「引用」", "全角ＡＢＣ１２３", "你好world", "hello世界123", "㐀𠀀𪚥", "龥龦", "ヿ゠ーゟ", "ㄅㄆㄇ", "가나다 라마",
    "שלום עולם", "שָׁלוֹם", "مرحبا", "مُحَمَّد", "\u202eabc\u202c", "\u200fא", "ﷺ", "ک‌ه", "لا",
    "😀", "😀😀", "a😀b", " 😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇨🇭🇫🇷", "1️⃣", "☃️", "❤", "❤️", "🫠", "👩🏿‍🚀🧑🏻‍🎄", "\ufe0f", "\u200d",
    "𝒜𝓁𝓅𝒽𝒶", "𝔄𝔟𝔠", "𝕏𝕐", "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋", "∑ᵢ₌₁ⁿ", "α≠β", "√2≈1.414", "→⇒↦", "░▒▓█", "┌─┐", "♔♕", "⠓⠑⠇⠇⠕", "🂡🀄", "𐀀𐌰𒀀𓀀", "𞤀𞤁", "𐐀𐐨",
    "\x00", "a\x00b", "\x01", "\x02\x03", "\x04", "a\x04b", "\x06\x13\x14\x16\x1d", "\x1b[31mred\x1b[0m", "\x7f", "\x08", "a\x1fb", "\x80\x9f", "\xad", "\u0085a",
    "\U0010ffff", "\U000f0000x", "\ue000", "\ufffd", "\ufffe", "\uffff", "\ufdd0", "\U00040000", "a\U000e0041b", "\U00080000",
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n", "a<|im_end|>b", " <|im_end|> ", "<|im_end|><|im_end|>",
    "<|im_start", "<|im_start|", "<|im_start<|im_start|>", "<<|im_end|>>", "<|IM_END|>", "< |im_end|>", "<|im_end|>'s", "it<|im_end|>'s", "  <|im_end|>  x",
    "\n\n<|im_end|>\n\n", "12<|im_end|>34", "<repo_name>", "<reponame>", "<file_sep>x", "<filename>a.c<gh_stars>100", "<issue_start><issue_comment><issue_closed>",
    "<jupyter_start><jupyter_text><jupyter_code><jupyter_output><jupyter_script><empty_output>", "<empty_output", "<jupyter_", "</s>", "<s>", "<unk>", "<pad>",
    "<|system|>", "[INST] x [/INST]", "<0x0A>", "<0x0a>", "▁", "a▁b", "Ġ", "ĠĠ", "Ċ", "aĠb", "<|begin_of_text|>", "<|eot_id|>", "<|im_start|>system\n<|im_start|>",
]

WORDS = PROSE.split()
GAPS = [" ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", "", "", ", ", ". ", ".\n", " - ", "\r\n", "\u00a0", " \n", "    "]
PARTS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<file_sep>", "<|im_", "|>", "<|", "'s", "'ll", "'RE", "12", "345", "6", "½", "😀", "👍🏽",
         "e\u0301", "中", "文字", "가", "\u0301", "!", "?!", "...", "/", "//", "\n", "\n\n", " ", "  ", "     ", "\t", "\r\n", "a", "B", "Cd", "EF", "gHi", "é", "ß", "ж", "ع", "\u200d", "_"]

# first and last code point of a block, and the name of its texts
BLOCKS = [(0x20, 0x7E), (0x20, 0x7E), (0xA0, 0xFF), (0x100, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x530, 0x58F), (0x590, 0x5FF),
          (0x600, 0x6FF), (0x700, 0x7FF), (0x900, 0x97F), (0x980, 0xDFF), (0xE00, 0xEFF), (0xF00, 0xFFF), (0x1000, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x139F),
          (0x13A0, 0x17FF), (0x1800, 0x1CFF), (0x1D00, 0x1DFF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x218F), (0x2190, 0x23FF), (0x2400, 0x2BFF), (0x2C00, 0x2E7F),
          (0x2E80, 0x303F), (0x3040, 0x30FF), (0x3100, 0x4DBF), (0x4E00, 0x9FFF), (0xA000, 0xABFF), (0xAC00, 0xD7A3), (0xE000, 0xE0FF), (0xF900, 0xFAFF), (0xFB00, 0xFDFF),
          (0xFE00, 0xFFEF), (0x10000, 0x107FF), (0x10800, 0x11FFF), (0x12000, 0x16FFF), (0x1B000, 0x1BFFF), (0x1D000, 0x1D7FF), (0x1E000, 0x1EFFF), (0x1F000, 0x1FAFF),
          (0x20000, 0x2A6DF), (0x00, 0x1F), (0x7F, 0x9F)]


def from_block(rng, block, n):
    out = []
    while len(out) < n:
        c = chr(rng.randint(*block))
        if unicodedata.category(c) not in ("Cn", "Cs"):
            out.append(c)
    return "".join(out)


def of_words(rng):
    return "".join(rng.choice(WORDS) + rng.choice(GAPS) for _ in range(rng.randint(1, 14)))


def of_parts(rng):
    return "".join(rng.choice(PARTS) for _ in range(rng.randint(1, 12)))


def of_spaces(rng):
    return "".join(rng.choice([" ", " ", "\n", "\t", "\r", "a", "1", "!", "\u3000"]) for _ in range(rng.randint(1, 20)))


def of_block(rng):
    first = from_block(rng, rng.choice(BLOCKS), rng.randint(1, 10))
    return first + rng.choice(GAPS) + from_block(rng, rng.choice(BLOCKS), rng.randint(0, 6))


def of_blocks(rng):
    return "".join(from_block(rng, rng.choice(BLOCKS), rng.randint(1, 2)) + rng.choice(["", "", " "]) for _ in range(rng.randint(1, 10)))


def of_lines(rng):
    text = rng.choice(PROSE.split("\n"))
    a = rng.randrange(len(text) + 1)
    return text[a:a + rng.randint(1, 120)]


def texts(n_random, seed):
    rng = random.Random(seed)
    makers = [of_words, of_parts, of_spaces, of_block, of_blocks, of_lines]
    drawn = [makers[i % len(makers)](rng) for i in range(n_random)]
    return list(dict.fromkeys(WRITTEN + PROSE.split("\n") + [PROSE] + drawn))
