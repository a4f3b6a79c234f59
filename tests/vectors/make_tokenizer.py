"""Makes the tokenizer's golden vectors: tests/vectors/tokenizer_*.jsonl and the small vocabularies beside them.

    /path/to/python tests/vectors/make_tokenizer.py models/SmolLM2-135M-Instruct.Q4_1.gguf

Oracles: Hugging Face's `tokenizers` (0.23) for byte-level BPE, Google's `sentencepiece` (0.2) for SentencePiece.

SmolLM2: transformers 5.23 builds a tokenizer from the GGUF file, but drops the pre-tokenizer that the file names: it
splits by GPT-2's pattern alone, where SmolLM2's tokenizer.json first takes each digit by itself ("a  12" shows the
difference). So the oracle is built here from the file's tokens and merges with the pre-tokenizer of SmolLM2's tokenizer.json,
Sequence[Digits(individual_digits), ByteLevel(use_regex)], no normaliser and no unknown token (bytes that the vocabulary
lacks vanish). The script also compares with transformers' own, and fails if they differ on a text for any other reason
than that pre-tokenizer.

Other families: small byte-level BPE tokenizers are trained here, on this folder's texts, with the pre-tokenizer that each
family's tokenizer.json has; SentencePiece's model is trained with its own library. Their vocabularies are committed.

A line of a .jsonl file: {"text": ..., "parsed": ids, "plain": ids}. "hex" stands for "text" where it holds a NUL; "plain"
(special tokens as text) is left out where it is the same as "parsed".
"""

import json
import pathlib
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tokenizer_texts import PROSE, WRITTEN, texts

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


def main():
    strings = texts(2000, seed=1)
    tokenizer = smollm2(sys.argv[1])
    compare_with_transformers(sys.argv[1], tokenizer, strings)
    write_vectors("smollm2", strings, encoder_of(tokenizer))


if __name__ == "__main__":
    main()
