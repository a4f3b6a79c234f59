"""The default model's tokenizer for the vector scripts, built from the model file's vocabulary and merges.

Its pre-tokenizer is defined here because a GGUF file only names it ("smollm"): single digits, then GPT-2's pattern.
"""

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers


def strings_of(reader, key):
    field = reader.fields[key]
    return [bytes(field.parts[i]).decode("utf-8") for i in field.data]


def smollm2_tokenizer(path):
    reader = GGUFReader(path)
    tokens = strings_of(reader, "tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ")) for m in strings_of(reader, "tokenizer.ggml.merges")]
    field = reader.fields["tokenizer.ggml.token_type"]
    types = [int(field.parts[i][0]) for i in field.data]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False)
                                  for t, kind in zip(tokens, types) if kind == 3])
    return tokenizer
