"""Makes the tokenizer's golden vectors: tests/vectors/tokenizer_*.jsonl and the small vocabularies next to them.

    /path/to/python tests/vectors/make_tokenizer.py models/SmolLM2-135M-Instruct.Q4_1.gguf

Oracles: Hugging Face's `tokenizers` (0.23) for byte-level BPE, Google's `sentencepiece` (0.2) for SentencePiece.

SmolLM2: transformers 5.23 builds a tokenizer from the GGUF file, but drops the pre-tokenizer that the file names: it
splits only by GPT-2's pattern, while SmolLM2's tokenizer.json first splits off each digit ("a  12" shows the
difference). So the oracle is built here from the file's tokens and merges with the pre-tokenizer of SmolLM2's
tokenizer.json, Sequence[Digits(individual_digits), ByteLevel(use_regex)], no normaliser and no unknown token (bytes
that the vocabulary lacks vanish). The script also compares with transformers' own, and fails if they differ on a text
for any other reason than that pre-tokenizer.

Other families: small byte-level BPE tokenizers are trained here, on this folder's texts, with the pre-tokenizer of each
family's tokenizer.json. SentencePiece's model is trained with its own library. Their vocabularies are committed.

A line of a .jsonl file: {"text": ..., "parsed": ids, "plain": ids}. "hex" replaces "text" if it contains a NUL; "plain"
(special tokens as text) is left out if it equals "parsed".
"""

import io
import json
import pathlib
import random
import re
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tokenizer_texts import PROSE, WORDS, WRITTEN, texts

HERE = pathlib.Path(__file__).parent
CONTROL, USER_DEFINED = 3, 4


def write_vectors(name, strings, encode):
    with open(HERE / f"tokenizer_{name}.jsonl", "w") as out:
        for text in strings:
            line = {"hex": text.encode().hex()} if "\0" in text else {"text": text}
            line["parsed"] = encode(text, True)
            plain = encode(text, False)
            if plain != line["parsed"]:
                line["plain"] = plain
            out.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(name, len(strings), "texts")


def encoder_of(tokenizer):
    def encode(text, parsed):
        tokenizer.encode_special_tokens = not parsed
        return tokenizer.encode(text, add_special_tokens=False).ids

    return encode


# ---- SmolLM2 ---------------------------------------------------------------------------------------------------


def smollm2(path):
    import gguf

    reader = gguf.GGUFReader(path)
    tokens, types, merges = (reader.fields["tokenizer.ggml." + key].contents() for key in ("tokens", "token_type", "merges"))
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[tuple(merge.split(" ")) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in zip(tokens, types) if k == CONTROL])
    assert all(tokenizer.token_to_id(token) == i for i, token in enumerate(tokens))
    return tokenizer


def compare_with_transformers(path, tokenizer, strings):
    from transformers import AutoTokenizer

    path = pathlib.Path(path).resolve()
    other = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)._tokenizer
    ours, theirs = encoder_of(tokenizer), encoder_of(other)
    differ = [t for t in strings if ours(t, True) != theirs(t, True)]
    other.pre_tokenizer = tokenizer.pre_tokenizer
    still = [t for t in strings if ours(t, True) != theirs(t, True) or ours(t, False) != theirs(t, False)]
    print(f"transformers' GGUF tokenizer differs on {len(differ)} texts, with SmolLM2's pre-tokenizer on {len(still)}")
    assert not still, still[:5]


# ---- the other families of byte-level BPE -------------------------------------------------------------------------

GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
WORD_A = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
WORD_B = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
REST_O = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CJK = "[一-龥ࠀ-一가-\ud7ff]+"
# DeepSeek LLM's letters, by code point, because editors replace some of them by equivalents.
LETTERS = """
41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376-377 37B-37D 37F 386 388-38A 38C 38E-3A1
3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77
1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE
1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124
2126 2128 212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183-2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2-2CF3
A640-A66D A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A
10400-1044F 104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943
"""
LETTERS = r"\s?[" + "".join(re.sub(r"([0-9A-F]+)", r"\\x{\1}", span) for span in LETTERS.split()) + "]+"
DEEPSEEK3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
             r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(*patterns):
    return [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]


def digits():
    return [pre_tokenizers.Digits(individual_digits=True)]


# name of the vocabulary and of its pattern: the steps before ByteLevel; None: ByteLevel's own pattern, GPT-2's
FAMILIES = {
    "gpt-2": None,
    "olmo": None,
    "llama-bpe": split(GPT4),
    "dbrx": split(GPT4),
    "qwen2": split(GPT4.replace("{1,3}", "")),
    "qwen35": split(QWEN35),
    "gpt-4o": split(WORD_A + SUFFIX + "|" + WORD_B + SUFFIX + r"|\p{N}{1,3}" + REST_O),
    "tekken": split(WORD_A + "|" + WORD_B + r"|\p{N}" + REST_O),
    "deepseek-llm": split("[\r\n]", LETTERS, "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", "\\s+$", CJK) + digits(),
    "deepseek-coder": split("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK) + digits(),
    "deepseek-v3": split(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3),
}
NORMALIZED = {"olmo", "qwen2", "qwen35"}
IGNORE_MERGES = {"llama-bpe", "tekken"}
# Tokens that merges do not produce: only a tokenizer that ignores merges returns them.
UNREACHABLE = ["ĠTurbine", "wheel", "Ġpressure", "Ãī"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|im_start|>system"]
ADDED = ["<tool_call>", "</tool_call>", "<tool", "    "]
MORE_TEXTS = ["<tool_call>{}</tool_call>", "<tool", "a <tool b", "<tool_cal", "x    y", "x     y", "        ", "the pressure rises", "a wheel",
              "Turbine Turbine wheels", "É É", " pressure", "<|im_start|>system\n", "<|im_start|>systems", "<|im_start|> system"]


def trained(name):
    steps = FAMILIES[name]
    tokenizer = Tokenizer(models.BPE(ignore_merges=name in IGNORE_MERGES))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=steps is None)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence((steps or []) + [level])
    if name in NORMALIZED:
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(vocab_size=256 + 500, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([PROSE] * 3 + WRITTEN + WRITTEN, trainer)
    return tokenizer


def extend(tokenizer, name):
    """Adds the unreachable tokens to the model, then the special and the added ones. Returns the vocabulary to commit."""
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    tokens += [token for token in UNREACHABLE if token not in model["vocab"]]
    merges = [tuple(merge) for merge in model["merges"]]
    tokenizer.model = models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges, ignore_merges=name in IGNORE_MERGES)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in ADDED])
    types = [1] * len(tokens) + [CONTROL] * len(SPECIALS) + [USER_DEFINED] * len(ADDED)
    tokens += SPECIALS + ADDED
    assert all(tokenizer.token_to_id(token) == i for i, token in enumerate(tokens))
    bos = tokens.index("<|im_start|>")
    return {"pre": name, "bos": bos, "eos": bos + 1, "unknown": -1, "add_bos": True, "add_eos": True, "tokens": tokens,
            "types": types, "merges": [" ".join(merge) for merge in merges]}


def write_vocabulary(name, vocabulary):
    with open(HERE / f"tokenizer_{name}.json", "w") as out:
        json.dump(vocabulary, out, ensure_ascii=False, separators=(",", ":"))
        out.write("\n")


def families():
    for i, name in enumerate(FAMILIES):
        tokenizer = trained(name)
        write_vocabulary(name, extend(tokenizer, name))
        write_vectors(name, WRITTEN + MORE_TEXTS + texts(250, seed=100 + i)[len(WRITTEN):], encoder_of(tokenizer))


# ---- SentencePiece ----------------------------------------------------------------------------------------------------


def train_sentencepiece():
    """A SentencePiece BPE model like Llama 2's: byte fallback, no normalisation, spaces kept, a space added at the start."""
    import sentencepiece

    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((PROSE.split("\n") + WORDS) * 4), model_writer=out, vocab_size=1100, model_type="bpe",
        byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=True,
        split_digits=True, allow_whitespace_only_pieces=True, character_coverage=0.98, minloglevel=2,
        hard_vocab_limit=False)
    return out.getvalue()


def sentencepiece_encoder(model, prefix, added, specials):
    """Added and special tokens are split out first, like in transformers, the longest at each place. SentencePiece
    encodes the rest, with the first space at the start and after a special token."""
    import sentencepiece

    with_prefix = sentencepiece.SentencePieceProcessor(model_proto=model)
    # One more normalizer_spec (field 3) with add_dummy_prefix (its field 3) = false: protocol buffers merge the two.
    without = sentencepiece.SentencePieceProcessor(model_proto=model + b"\x1a\x02\x18\x00")
    assert with_prefix.encode("a") != without.encode("a")

    def encode(text, parsed):
        tokens = {**added, **specials} if parsed else added
        pattern = "|".join(re.escape(token) for token in sorted(tokens, key=len, reverse=True))
        ids, first = [], prefix
        for part in re.split(f"({pattern})", text):
            if part in tokens:
                ids.append(tokens[part])
                first = prefix and part in specials
            elif part:
                ids += (with_prefix if first else without).encode(part)
                first = False
        return ids

    return encode


def sentencepiece_family():
    import sentencepiece

    model = train_sentencepiece()
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    ids = range(processor.vocab_size())
    tokens, scores = [processor.id_to_piece(i) for i in ids], [processor.get_score(i) for i in ids]
    types = [2 if processor.is_unknown(i) else 3 if processor.is_control(i) else 6 if processor.is_byte(i) else 1 for i in ids]
    specials = {token: i for i, token in enumerate(tokens) if types[i] in (2, CONTROL)}
    more = {"<|im_start|>": CONTROL, "<|im_end|>": CONTROL, **dict.fromkeys(ADDED, USER_DEFINED)}
    added = {}
    for token, kind in more.items():
        (specials if kind == CONTROL else added)[token] = len(tokens)
        tokens.append(token)
        types.append(kind)
        scores.append(0.0)
    for name, prefix, seed in (("llama", True, 200), ("gemma", False, 201)):
        write_vocabulary(name, {"bos": 1, "eos": 2, "unknown": 0, "add_bos": True, "add_space_prefix": prefix, "tokens": tokens,
                                "types": types, "scores": scores})
        strings = WRITTEN + MORE_TEXTS + texts(300, seed)[len(WRITTEN):]
        strings = [text for text in strings if "\0" not in text]  # the library's byte fallback for NUL is lost in the conversion
        write_vectors(name, strings, sentencepiece_encoder(model, prefix, added, specials))


# ---- bytes to text -----------------------------------------------------------------------------------------------------


def decoding():
    """Bytes, and their text from Python's replacing decoder."""
    rng = random.Random(7)
    likely = [0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF]
    cases = [bytes([a]) for a in range(256)] + [bytes([a, b]) for a in likely for b in likely]
    cases += [bytes(rng.choice(likely) for _ in range(rng.randint(3, 12))) for _ in range(1500)]
    cases += [bytes(rng.randrange(256) for _ in range(rng.randint(3, 12))) for _ in range(300)]
    cases += [text.encode()[:-1] for text in WRITTEN] + [text.encode()[1:] for text in WRITTEN]
    with open(HERE / "detokenizer.jsonl", "w") as out:
        for case in dict.fromkeys(cases):
            line = {"hex": case.hex(), "decoded": case.decode(errors="replace").encode().hex()}
            out.write(json.dumps(line, separators=(",", ":")) + "\n")


def main():
    strings = texts(2000, seed=1)
    tokenizer = smollm2(sys.argv[1])
    compare_with_transformers(sys.argv[1], tokenizer, strings)
    write_vectors("smollm2", strings, encoder_of(tokenizer))
    families()
    sentencepiece_family()
    decoding()


if __name__ == "__main__":
    main()
