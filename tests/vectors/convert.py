"""Lets llama.cpp's converter write the GGUF files of folders that make_folders.py made.

    build/oracle/venv/bin/python tests/vectors/convert.py LLAMA_CPP OUT END FOLDER...

LLAMA_CPP is a folder with llama.cpp's sources, OUT gets NAME.END.gguf of each FOLDER. The tiny vocabularies are
byte-level BPE that published models do not have. The converter would recognise one by its text's hash, or read
SentencePiece's file; instead the script tells it the kind. It also gives some folders the keys of published ones
(published_keys.py). The rest is the converter's work.
"""
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(sys.argv[1]).resolve()))
import convert_hf_to_gguf as converter  # noqa: E402
import published_keys  # noqa: E402 (after the converter, which brings its own version of gguf)


def byte_level(model):
    model._set_vocab_gpt2()


def convert(folder, out):
    architecture = converter.get_model_architecture(converter.ModelBase.load_hparams(folder, False), converter.ModelType.TEXT)
    kind = converter.get_model_class(architecture)
    kind.get_vocab_base_pre = lambda self, tokenizer: "qwen2"
    kind.set_vocab = byte_level
    kind.no_mtp = True  # as its option --no-mtp: the folders lack the layers that guess ahead
    as_is = {"hparams": json.loads((folder / "config.json").read_text())} if folder.name in published_keys.READ_AS_IS else {}
    kind(folder, converter.gguf.LlamaFileType.ALL_F32, out, **as_is).write()


def main():
    out, end, failed = Path(sys.argv[2]), sys.argv[3], []
    for folder in map(Path, sys.argv[4:]):
        try:
            with tempfile.TemporaryDirectory() as room:
                convert(published_keys.published(folder, Path(room)), out / f"{folder.name}.{end}.gguf")
        except (Exception, SystemExit) as why:  # the converter has many ways to give up
            failed.append(f"{folder.name}: {type(why).__name__}: {why}")
    print(*failed, sep="\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
