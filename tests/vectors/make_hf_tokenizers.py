"""Makes tests/vectors/hf_tokenizers/: tokenizer.json files in many configurations, and the results of `tokenizers` for
texts.

    /path/to/python tests/vectors/make_hf_tokenizers.py [--many DIR]

Oracle: Hugging Face's `tokenizers` (0.23). Small tokenizers are trained here, on this folder's texts, in each
configuration of published models, and in some others. Next to each NAME.json is NAME.jsonl with a line for each text:
{"text": ..., "ids": ids, "plain": ids with special tokens as text, "around": ids with those of the post-processor,
"decoded": the text of "ids", "pair": ids of the text and a second one, "n_first": those of type 0}. "hex" replaces "text" if it contains a NUL; "plain", "around" and "decoded" are left out
if they equal "ids" or the text. --many writes files with 5,000 texts each to another folder, for a thorough run:
PENSTOCK_HF_TOKENIZERS=DIR build/test_engine_hf_tokenizer. Texts contain only characters that are older than the
library's Unicode tables: it does not decompose, order or split newer ones by Unicode's rules.
"""

import argparse
import functools
import json
import pathlib
import unicodedata

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import pack
from make_tokenizer import GPT4, REST_O, SUFFIX, WORD_A, WORD_B
from tokenizer_texts import PROSE, WRITTEN, texts

HERE = pathlib.Path(__file__).parent
SPECIALS = ["<s>", "</s>", "<unk>", "<|im_start|>", "<|im_end|>"]
ADDED = [("<tool_call>", {}), ("<left>", {"lstrip": True}), ("<right>", {"rstrip": True}), ("<both>", {"lstrip": True, "rstrip": True}),
         ("word", {"single_word": True}), ("Été", {"normalized": True}), ("    ", {}), ("A Big", {"normalized": True, "single_word": True})]
MORE = ["a <left> b", "a  <left>b", "a<right>  \n b", " <both> ", "x <both>\t\n<both> y", "\n\n<right>\n\n<left>", "word", "a word b", "words", "wordword",
        "word word", "(word)", "été Été ÉTÉ", "E\u0301te\u0301", "a big A Big A Bigger", "<s>a</s>", "a<s>", "<s> a", " <s>  a </s> ", "<|im_start|>word<|im_end|>",
        "<tool_call>{}</tool_call>", "    ", "     ", "a    b", "<unk>", "<0x41>", "<0x", "\u2581a", "a\u2581\u2581b", "ab12cd", "a1b22c333", "1,234.5", "a.b!c?", "...!!!",
        "aBcDeF", "don't", "DON'T", "x\u00a0y", "\u3000a\u3000", "\ufb01\u2460\u00bd", "\u1e9b\u0323", "\u0130I\u0131i", "\u03a3\u03c2\u03c3", "\u2126\u212b", "ﾊﾝｶｸ ㍍ ㌔", "a\u0300\u0301b", "  a  b  ",
        "\ta\tb\t", "a\n\n\nb", "\r\n", "ab\u200dcd", "\u24b6\u24d0", "x²y³", "𝔘𝔫𝔦", "ゼ\u3099", "नि", "กำ", "👩‍👩‍👧‍👦", "🇦🇧🇨"]


@functools.cache
def is_newer(c):
    """Is the library's knowledge of a character older than Python's: its parts, its class among marks, that it is
    punctuation?"""
    kind, order = unicodedata.category(c), unicodedata.combining(c)
    if kind == "Cn" or normalizers.NFKD().normalize_str(c) != unicodedata.normalize("NFKD", c):
        return kind != "Cn"
    if order and normalizers.NFD().normalize_str("a\u0345" + c) != unicodedata.normalize("NFD", "a\u0345" + c):
        return True
    if kind == "Mn" and normalizers.BertNormalizer(False, False, True, False).normalize_str("a" + c) != "a":
        return True
    is_mark = len(pre_tokenizers.Punctuation().pre_tokenize_str("a" + c + "b")) == 3
    return is_mark != (kind[0] == "P") and not (is_mark and c.isascii())


def texts_of(n, seed):
    strings = list(dict.fromkeys(WRITTEN + MORE + texts(n, seed)[len(WRITTEN):]))
    return [s for s in strings if not any(0xD800 <= ord(c) < 0xE000 or is_newer(c) for c in s)]


def bpe(**options):
    return Tokenizer(models.BPE(**options))


def train(tokenizer, size=700, initial=(), specials=True):
    kwargs = {"special_tokens": ["<unk>", "<s>", "</s>"]} if specials else {}
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=list(initial), limit_alphabet=300, **kwargs)
    tokenizer.train_from_iterator([PROSE] * 3 + [text for text in WRITTEN if "\0" not in text] * 2, trainer)
    return tokenizer


def rebuild(tokenizer, extra=(), **model):
    """Returns the trained model with other settings, and with tokens that merges do not produce."""
    state = json.loads(tokenizer.to_str())["model"]
    vocab = dict(state["vocab"])
    for token in extra:
        vocab.setdefault(token, len(vocab))
    tokenizer.model = models.BPE(vocab=vocab, merges=[tuple(m) for m in state["merges"]], **model)
    return tokenizer


def add(tokenizer, normalized_specials=False):
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=normalized_specials) for t in SPECIALS])
    tokenizer.add_tokens([AddedToken(t, special=False, **{"normalized": False, **rules}) for t, rules in ADDED])
    return tokenizer


BYTES = [f"<0x{i:02X}>" for i in range(256)]
ALPHABET = pre_tokenizers.ByteLevel.alphabet()


def byte_level(steps=None, normalizer=None, extra=(), prefix=False, **model):
    t = bpe()
    t.pre_tokenizer = pre_tokenizers.Sequence((steps or []) + [pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=steps is None)])
    t.decoder = decoders.ByteLevel()
    train(t, initial=ALPHABET, specials=False)
    if normalizer:
        t.normalizer = normalizer
    return rebuild(t, extra, **model)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def gpt2():
    t = byte_level()
    add(t, normalized_specials=True)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t


def roberta():
    t = byte_level(prefix=True)
    add(t)
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template(t, "<s> $A </s>")])
    return t


def template(t, single):
    ids = [(s, t.token_to_id(s)) for s in ("<s>", "</s>")]
    return processors.TemplateProcessing(single=single, pair=None, special_tokens=ids)


def llama3():
    t = byte_level([split(GPT4)], extra=["ĠTurbine", "wheel", "Ãī"], ignore_merges=True)
    add(t)
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), template(t, "<s> $A")])
    return t


def qwen():
    return add(byte_level([split(GPT4.replace("{1,3}", ""))], normalizer=normalizers.NFC()))


def o200k():
    return add(byte_level([split(WORD_A + SUFFIX + "|" + WORD_B + SUFFIX + r"|\p{N}{1,3}" + REST_O)]))


def falcon():
    """ByteLevel is not the last step: later steps see the alphabet."""
    t = bpe()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Digits(individual_digits=False),
        split("[0-9][0-9][0-9]")])
    t.decoder = decoders.ByteLevel()
    return add(rebuild(train(t, initial=ALPHABET, specials=False)))


def unknown_bytes():
    """Byte level, but some bytes are not tokens: these are unknown."""
    t = bpe()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    return add(rebuild(train(t), unk_token="<unk>"))


def llama2(fallback=True, fuse=True, prepend=True):
    t = bpe(byte_fallback=fallback, unk_token="<unk>", fuse_unk=fuse)
    t.normalizer = normalizers.Sequence(([normalizers.Prepend("▁")] if prepend else []) + [normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = split(r"(?=▁)")  # only so that it trains on words
    train(t, size=500)
    t.pre_tokenizer = None
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] + ([decoders.Strip(" ", 1, 0)] if prepend else []))
    rebuild(t, BYTES if fallback else (), byte_fallback=fallback, unk_token="<unk>", fuse_unk=fuse)
    add(t, normalized_specials=not fallback)
    t.post_processor = template(t, "<s> $A")
    return t


def gemma():
    t = llama2(prepend=False)
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    return t


def metaspace(scheme, split_words, **model):
    t = bpe(unk_token="<unk>", **model)
    t.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=scheme)
    train(t, size=500)
    t.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=split_words)
    t.decoder = decoders.Metaspace("▁", prepend_scheme=scheme)
    return add(rebuild(t, unk_token="<unk>", **model))


def characters(normalizer, steps, **model):
    t = bpe(unk_token="<unk>", **model)
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Sequence(steps)
    train(t, size=500)
    return add(rebuild(t, unk_token="<unk>", **model))


def unigram(normalizer=None, fallback=False, scheme="always", steps=()):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Sequence(list(steps) + [pre_tokenizers.Metaspace("▁", prepend_scheme=scheme)])
    t.decoder = decoders.Metaspace("▁", prepend_scheme=scheme)
    trainer = trainers.UnigramTrainer(vocab_size=500, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>")
    t.train_from_iterator((PROSE.split("\n") + PROSE.split()) * 3, trainer)
    state = json.loads(t.to_str())["model"]
    vocab = [(token, score) for token, score in state["vocab"]] + ([(b, -20.0) for b in BYTES] if fallback else [])
    t.model = models.Unigram(vocab, unk_id=state["unk_id"], byte_fallback=fallback)
    if fallback:
        t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    add(t)
    t.post_processor = template(t, "$A </s>")
    return t


# The replacements of the small map, in SentencePiece's form: code points, a tab, code points.
RULES = ["41\t61", "C4\t61 308", "FB01\t66 69", "2460\t31", "61 301\tE1", "61 301 327\t2E 2E", "3A3\t3C3", "FF21\t41", "337F\t682A 5F0F 4F1A 793E",
         "304B 3099\t304C", "200B\t", "A0\t20", "3000\t20", "9\t20", "A\t20", "1F468\t6D", "1F468 200D\t6E", "E01 E33\tE01 E4D E32", "AD\t", "2126\t3A9"]


def charsmap(rules):
    """Returns the map that SentencePiece compiles from rules, or has under a name."""
    import io
    import tempfile

    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as proto

    out = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        file.write("\n".join(rules) + "\n")
        file.flush()
        which = {"normalization_rule_name": rules} if isinstance(rules, str) else {"normalization_rule_tsv": file.name}
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(PROSE.split("\n")), model_writer=out, vocab_size=400, model_type="bpe",
                                                 minloglevel=2, hard_vocab_limit=False, character_coverage=0.98, **which)
    model = proto.ModelProto()
    model.ParseFromString(out.getvalue())
    return model.normalizer_spec.precompiled_charsmap


def t5(rules=RULES):
    steps = [normalizers.Precompiled(charsmap(rules)), normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")]
    return unigram(normalizers.Sequence(steps), steps=[pre_tokenizers.WhitespaceSplit()])


# Words of other lengths than WordPiece's limit of 12, and of characters that its vocabulary lacks.
MORE_WORDS = ["antidisestablishment", "twelveletter", "thirteenchars", "x" * 300, "日本語のテスト", "a日b", "\u3400\uf900\U0002b900\U0002b920", "naïve café", "cafe\u0301",
              "a\u200bb\u00adc", "\ufffd\ue000x\u0085y", "don't do not stop . ! ? , ' n't", "##ing", "[CLS] a [SEP]", "[UNK]", "[MASK]x", "ab##cd", "I ' m", "Ǆ ǅ ß ẞ Σ"]


def wordpiece(normalizer, processor, cleanup=True, prefix="##", most=100, steps=None):
    """BERT's: words from the texts, cased if the normalizer keeps capitals."""
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizer
    t.pre_tokenizer = steps or pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=600, show_progress=False, special_tokens=specials, limit_alphabet=200, continuing_subword_prefix=prefix)
    t.train_from_iterator([PROSE] * 3 + [text for text in WRITTEN if "\0" not in text] * 2, trainer)
    vocab = json.loads(t.to_str())["model"]["vocab"]
    t.model = models.WordPiece(vocab=vocab, unk_token="[UNK]", max_input_chars_per_word=most, continuing_subword_prefix=prefix)
    t.decoder = decoders.WordPiece(prefix=prefix, cleanup=cleanup)
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    t.add_tokens([AddedToken(s, special=False, **{"normalized": False, **rules}) for s, rules in ADDED if s != "<s>"])
    t.post_processor = processor(t)
    return t


def bert_template(t):
    ids = [(s, t.token_to_id(s)) for s in ("[CLS]", "[SEP]")]
    return processors.TemplateProcessing(single="[CLS]:0 $A:0 [SEP]:0", pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", special_tokens=ids)


def bert_processing(t):
    return processors.BertProcessing(("[SEP]", t.token_to_id("[SEP]")), ("[CLS]", t.token_to_id("[CLS]")))


def roberta_processing(t):
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")), trim_offsets=True, add_prefix_space=True)
    return t


def xlm_roberta():
    """XLM-R's steps: SentencePiece's map, and the pair with two marks between its texts."""
    t = unigram(normalizers.Sequence([normalizers.Precompiled(charsmap(RULES)), normalizers.Replace(Regex(" {2,}"), " ")]), scheme="always")
    ids = [(s, t.token_to_id(s)) for s in ("<s>", "</s>")]
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=ids)
    return t


def embedding_gemma():
    """Gemma's steps with a mark at both ends."""
    t = gemma()
    ids = [(s, t.token_to_id(s)) for s in ("<s>", "</s>")]
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A <s>:1 $B:1", special_tokens=ids)
    return t


WORDS = [pre_tokenizers.Whitespace()]
CONFIGURATIONS = {
    "gpt2": gpt2,
    "roberta": roberta,
    "llama3": llama3,
    "qwen": qwen,
    "o200k": o200k,
    "falcon": falcon,
    "unknown_bytes": unknown_bytes,
    "llama2": llama2,
    "llama2_unk": lambda: llama2(fallback=False),
    "llama2_each_unk": lambda: llama2(fallback=False, fuse=False),
    "gemma": gemma,
    "metaspace_always": lambda: metaspace("always", True),
    "metaspace_first": lambda: metaspace("first", False, ignore_merges=True),
    "metaspace_never": lambda: metaspace("never", True, fuse_unk=True),
    "words_nfkc": lambda: characters(normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]), WORDS),
    "words_nfd": lambda: characters(normalizers.Sequence([normalizers.Strip(), normalizers.NFD()]), WORDS + [pre_tokenizers.Digits(True)]),
    "words_nfkd": lambda: characters(normalizers.NFKD(), [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("isolated")], ignore_merges=True),
    "removed": lambda: characters(None, [split(r"\s+", "removed"), split(r"\d", "merged_with_previous")]),
    "inverted": lambda: characters(None, [split(r"\w+|[^\w\s]", "removed", True), split(r"[aeiou]", "merged_with_next")]),
    "contiguous": lambda: characters(normalizers.Replace(Regex(r"\d+"), "0"), [split(r"\h|\s", "contiguous"), split(r"(?=\p{Lu})")]),
    "lines": lambda: characters(None, [split(r"^\s|\s$", "isolated"), pre_tokenizers.Punctuation("merged_with_next")]),
    "unigram": unigram,
    "unigram_bytes": lambda: unigram(normalizers.NFKC(), fallback=True, scheme="first"),
    "t5": t5,
    "bert_uncased": lambda: wordpiece(normalizers.BertNormalizer(), bert_template),
    "bert_cased": lambda: wordpiece(normalizers.BertNormalizer(lowercase=False), bert_processing, cleanup=False, most=12),
    "bert_accents": lambda: wordpiece(normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False), bert_processing),
    "bert_lower": lambda: wordpiece(normalizers.BertNormalizer(handle_chinese_chars=False, strip_accents=False), bert_template, prefix="@", steps=pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(True)])),
    "roberta_pairs": lambda: roberta_processing(roberta()),
    "xlm_roberta": xlm_roberta,
    "embedding_gemma": embedding_gemma,
}


SECOND = "A second text: caf\u00e9."


def line_of(tokenizer, text):
    line = {"hex": text.encode().hex()} if "\0" in text else {"text": text}
    tokenizer.encode_special_tokens = False
    ids = line["ids"] = tokenizer.encode(text, add_special_tokens=False).ids
    around = tokenizer.encode(text, add_special_tokens=True).ids
    tokenizer.encode_special_tokens = True
    plain = tokenizer.encode(text, add_special_tokens=False).ids
    decoded = tokenizer.decode(ids, skip_special_tokens=False)
    # Unigram reads special tokens of its vocabulary from plain text, too. Penstock never does: a user could forge a
    # turn.
    if {tokenizer.token_to_id(token) for token in SPECIALS} & set(plain):
        plain = None
    if tokenizer.post_processor:
        pair = tokenizer.encode(text, SECOND)
        line["pair"], line["n_first"] = (pair.ids, pair.type_ids.count(0)) if plain is not None else (None, 0)
        assert pair.type_ids == sorted(pair.type_ids)
    line.update({k: v for k, v in (("plain", plain), ("around", around)) if v != ids})
    if decoded != text:
        line["decoded"] = {"hex": decoded.encode().hex()} if "\0" in decoded else decoded
    return line


# ---- SentencePiece's own files and Mistral's -----------------------------------------------------------------------


def sentencepiece_model(**options):
    import io

    import sentencepiece

    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter((PROSE.split("\n") + PROSE.split()) * 3), model_writer=out, vocab_size=700,
                                             minloglevel=2, hard_vocab_limit=False, character_coverage=0.98, **options)
    return out.getvalue()


def rules_file():
    import tempfile

    file = tempfile.NamedTemporaryFile("w", suffix=".tsv", delete=False)
    file.write("\n".join(RULES) + "\n")
    file.close()
    return file.name


PLAIN = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False}
MODELS = {
    "sp_bpe": lambda: sentencepiece_model(model_type="bpe", byte_fallback=True, **PLAIN),
    "sp_bpe_rules": lambda: sentencepiece_model(model_type="bpe", normalization_rule_tsv=rules_file()),
    "sp_unigram": lambda: sentencepiece_model(model_type="unigram", byte_fallback=True, **PLAIN),
    "sp_unigram_rules": lambda: sentencepiece_model(model_type="unigram", normalization_rule_tsv=rules_file()),
    "sp_unigram_bare": lambda: sentencepiece_model(model_type="unigram", add_dummy_prefix=False, normalization_rule_name="identity"),
}


def write_models(out, n):
    import sentencepiece

    for seed, (name, make) in enumerate(MODELS.items()):
        model = make()
        (out / f"{name}.model").write_bytes(model)
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        with open(out / f"{name}.jsonl", "w") as file:
            for text in texts_of(n, 500 + seed):
                if "\0" in text or any(special in text for special in ("<s>", "</s>", "<unk>")):
                    continue  # Penstock splits them out first; SentencePiece does not support NUL
                ids = processor.encode(text)
                line = {"text": text, "ids": ids, "around": [1] + ids, "decoded": processor.decode(ids)}
                if 0 in ids or "\ufffd" in line["decoded"]:
                    line["decoded"] = None  # the library writes another text for the unknown token
                file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
        print(name)


def write_tekken(out, n):
    """A vocabulary of tiktoken's kind in Mistral's form; tiktoken is the oracle."""
    import base64

    import tiktoken

    pattern = WORD_A + "|" + WORD_B + r"|\p{N}" + REST_O
    vocab = json.loads(byte_level([split(pattern)]).to_str())["model"]["vocab"]
    byte_of = {c: b for b, c in enumerate_bytes()}
    ranks = {}
    for token in sorted(vocab, key=vocab.get):
        ranks.setdefault(bytes(byte_of[c] for c in token), len(ranks))
    first = [bytes([b]) for b in range(256)]  # as in all such files, the bytes are first
    ranks = {token: i for i, token in enumerate(first + [t for t in ranks if len(t) > 1])}
    specials = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"]
    n_special = 20
    encoding = tiktoken.Encoding("tekken", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    data = {"config": {"pattern": pattern, "num_vocab_tokens": len(ranks), "default_vocab_size": n_special + len(ranks),
                       "default_num_special_tokens": n_special, "version": "v7"},
            "vocab": [{"rank": r, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for t, r in ranks.items()],
            "special_tokens": [{"rank": i, "token_str": t, "is_control": True} for i, t in enumerate(specials)]}
    (out / "tekken.json").write_text(json.dumps(data, separators=(",", ":")) + "\n")
    with open(out / "tekken.jsonl", "w") as file:
        for text in texts_of(n, 600):
            if any(special in text for special in specials):
                continue
            ids = [i + n_special for i in encoding.encode(text)]
            line = {"hex": text.encode().hex()} if "\0" in text else {"text": text}
            file.write(json.dumps({**line, "ids": ids, "around": [1] + ids}, ensure_ascii=False, separators=(",", ":")) + "\n")
    print("tekken")


def enumerate_bytes():
    """Each byte with its character in GPT-2's alphabet."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in shown]
    return [(b, chr(b)) for b in shown] + [(b, chr(256 + i)) for i, b in enumerate(others)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--many", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    out = options.many or HERE / "hf_tokenizers"
    out.mkdir(exist_ok=True, parents=True)
    if not options.names:
        write_models(out, 5000 if options.many else 60)
        write_tekken(out, 5000 if options.many else 60)
    for seed, (name, make) in enumerate(CONFIGURATIONS.items()):
        if options.names and name not in options.names:
            continue
        tokenizer = t5("nmt_nfkc") if options.many and name == "t5" else make()
        strings = texts_of(5000 if options.many else 60, 300 + seed)
        if not options.many:
            strings = strings[seed % 3::3] + MORE + MORE_WORDS * name.startswith("bert")
        (out / f"{name}.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
        with open(out / f"{name}.jsonl", "w") as file:
            for text in dict.fromkeys(strings):
                file.write(json.dumps(line_of(tokenizer, text), ensure_ascii=False, separators=(",", ":")) + "\n")
        print(name, len(strings))
    if not options.many:
        pack.pack("hf_tokenizers")


if __name__ == "__main__":
    main()
