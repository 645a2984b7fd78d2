"""Files and folders: told apart by content, and folders loaded with or without their weights.

The ONNX files are written byte by byte, so that the test does not depend on the library whose
format it checks; one real export confirms them.
"""

import json
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ftax.errors import FtaxError, InvalidArgumentError, UnsupportedError
from ftax.steps.decode import decode
from ftax.steps.load import load_model
from ftax.steps.outputs import flatten_outputs
from ftax.steps.paths import describe_path
from ftax.steps.zoo.huggingface import quiet_transformers

# ir_version (field 1, integer) 8; producer_name (field 2) "ab"; graph (field 7) of 3 bytes;
# one opset (field 8) of 2 bytes: version (its field 2) 17.
ONNX = bytes((0x08, 8, 0x12, 2)) + b"ab" + bytes((0x3A, 3)) + b"\x00\x01\x02" + b"\x42\x02\x10\x11"


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def write_zip(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(f"model/{name}", b"x")
    return path


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torchscript_is_known_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    torch.jit.save(torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)), str(path))
    assert describe_path(path) == "torchscript"
    with pytest.raises(UnsupportedError, match=r"file of torchscript.*runtime='torchscript'"):
        load_model(path)


def test_onnx_is_known_whatever_its_name(tmp_path: Path) -> None:
    path = write(tmp_path / "model.bin", ONNX)
    assert describe_path(str(path)) == "onnx"
    with pytest.raises(UnsupportedError, match=r"file of onnx.*runtime='onnxruntime'"):
        load_model(path)


def test_onnx_of_the_onnx_library_is_known(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    value = onnx.helper.make_tensor_value_info("x", 1, [1])
    node = onnx.helper.make_node("Identity", ["x"], ["y"])
    output = onnx.helper.make_tensor_value_info("y", 1, [1])
    graph = onnx.helper.make_graph([node], "g", [value], [output])
    model = onnx.helper.make_model(graph, producer_name="test", doc_string="d" * 300)
    onnx.save(model, tmp_path / "model.onnx")
    assert describe_path(tmp_path / "model.onnx") == "onnx"


@pytest.mark.parametrize("length", [5, 9, len(ONNX) - 1])
def test_onnx_that_is_cut_short_is_damaged(tmp_path: Path, length: int) -> None:
    path = write(tmp_path / "model.onnx", ONNX[:length])
    with pytest.raises(InvalidArgumentError, match="cut short or damaged"):
        describe_path(path)


def test_onnx_with_a_length_beyond_the_file_is_damaged(tmp_path: Path) -> None:
    path = write(tmp_path / "model.onnx", ONNX[:6] + b"\x3a" + b"\xff" * 8 + b"\x7f" + b"x" * 50)
    with pytest.raises(InvalidArgumentError, match="cut short or damaged"):
        describe_path(path)


def test_zip_that_is_cut_short_is_damaged(tmp_path: Path) -> None:
    whole = write_zip(tmp_path / "whole.pt", "constants.pkl", "data.pkl").read_bytes()
    path = write(tmp_path / "model.pt", whole[:-30])
    with pytest.raises(InvalidArgumentError, match="cut short or damaged"):
        describe_path(path)


FOREIGN: list[tuple[bytes, type[FtaxError], str]] = [
    (b"", InvalidArgumentError, "is empty"),
    (b"hello world, this is text", UnsupportedError, r"neither.*b'hello wo'"),
    (b"\n\x03abc plain text after a line break", UnsupportedError, "neither"),
    (b"\x89HDF\r\n\x1a\n" + b"\x00" * 40, UnsupportedError, "neither"),
    (pickle.dumps({"weight": 1}), UnsupportedError, r"written by torch.save"),
    ((30).to_bytes(8, "little") + b'{"a":1}' + b" " * 60, UnsupportedError, "safetensors"),
]


@pytest.mark.parametrize(("content", "error", "message"), FOREIGN)
def test_foreign_file_is_named(
    tmp_path: Path, content: bytes, error: type[FtaxError], message: str
) -> None:
    with pytest.raises(error, match=message):
        describe_path(write(tmp_path / "model.pt", content))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("data.pkl", r"written by torch\.save"),
        ("archive_format", r"torch\.export or AOTInductor"),
        ("readme.txt", r"without constants\.pkl"),
    ],
)
def test_foreign_zip_is_named(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        describe_path(write_zip(tmp_path / "model.pt", name))


def test_checkpoint_of_torch_save_is_named(tmp_path: Path) -> None:
    for zipped in (True, False):
        torch.save({"w": torch.zeros(1)}, tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)
        with pytest.raises(UnsupportedError, match=r"written by torch\.save"):
            describe_path(tmp_path / "m.pt")


@pytest.mark.parametrize("name", ["nothing.pt", "nothing.onnx", "some/nothing", "./nothing"])
def test_missing_path_is_named(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"no file or folder '{Path(name)}'"):
        load_model(name)


def test_a_file_of_python_wants_a_name_in_it(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text("import torch")
    with pytest.raises(InvalidArgumentError, match=r"is Python: name .*service\.py:make"):
        load_model(tmp_path / "service.py")


CONFIGS: list[tuple[str | None, type[FtaxError], str]] = [
    (None, InvalidArgumentError, r"has no config\.json"),
    ("{", InvalidArgumentError, r"config\.json is not JSON"),
    ("[]", UnsupportedError, "names no model_type"),
    ('{"hidden_size": 3}', UnsupportedError, "names no model_type"),
]


@pytest.mark.parametrize(("text", "error", "message"), CONFIGS)
def test_folder_that_is_no_model_is_named(
    tmp_path: Path, text: str | None, error: type[FtaxError], message: str
) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(error, match=message):
        describe_path(tmp_path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder with a tiny GPT-2, and the module that was saved."""
    path = tmp_path_factory.mktemp("models") / "small-gpt2"
    module: Any = load_model("gpt2", tiny=True, seed=5).module
    module.save_pretrained(path)
    return path, module


def copy_config(source: Path, target: Path, **changes: Any) -> Path:
    config = json.loads((source / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **changes}))
    return target


def test_folder_is_loaded_with_its_weights_and_its_head(saved: tuple[Path, Any]) -> None:
    path, module = saved
    model = load_model(path, sequence=8)
    assert describe_path(path) == "hf_folder"
    assert model.options["weights"] == "folder"
    assert (model.name, model.options["architecture"]) == ("small-gpt2", "GPT2LMHeadModel")
    assert (model.warnings, model.sequence, model.module.training) == ((), 8, False)
    with torch.inference_mode():
        assert torch.equal(model.call().logits, module(*model.args, use_cache=False).logits)


def test_folder_has_options_dtype_and_a_recipe(saved: tuple[Path, Any]) -> None:
    model = load_model(str(saved[0]), attention="eager", use_cache=True, dtype="bf16", batch=2)
    assert (model.options["attention"], model.options["use_cache"]) == ("eager", True)
    assert (model.batch, model.sequence) == (2, 128)
    again = load_model(**json.loads(json.dumps(model.recipe())))
    assert (again.options, again.recipe()) == (model.options, model.recipe())
    with torch.inference_mode():
        pairs = zip(flatten_outputs(model.call()), flatten_outputs(again.call()), strict=True)
        assert all(torch.equal(first, second) for first, second in pairs)
    assert next(model.module.parameters()).dtype is torch.bfloat16


def test_folder_without_weights_gets_random_ones_and_a_warning(
    saved: tuple[Path, Any], tmp_path: Path
) -> None:
    copy_config(saved[0], tmp_path)
    model = load_model(tmp_path, sequence=8)
    assert model.options["weights"] == "random"
    assert "no weights" in model.warnings[0]
    assert torch.equal(model.call().logits, load_model(tmp_path, sequence=8).call().logits)
    assert 0.1 < float(model.call().logits.std()) < 10


def test_image_folder_gets_images(tmp_path: Path) -> None:
    module: Any = load_model("resnet-50", tiny=True).module
    module.config.save_pretrained(tmp_path)
    model = load_model(tmp_path)
    assert (model.sequence, tuple(model.flat_inputs()[0].shape)) == (None, (1, 3, 224, 224))
    with pytest.raises(InvalidArgumentError, match=r"sequence is 8.*takes no tokens"):
        load_model(tmp_path, sequence=8)


@pytest.mark.parametrize("weights", ["folder", "random"])
def test_a_folder_of_an_encoder_with_a_decoder_gets_two_texts_and_decodes(
    tmp_path: Path, weights: str
) -> None:
    with quiet_transformers() as transformers:
        config = transformers.T5Config(
            d_model=32, d_kv=8, d_ff=64, num_layers=1, num_heads=4, vocab_size=200
        )
        module = transformers.T5ForConditionalGeneration(config)
        (module if weights == "folder" else config).save_pretrained(tmp_path)
        if weights == "random":
            config = json.loads((tmp_path / "config.json").read_text())
            config["architectures"] = ["T5ForConditionalGeneration"]
            (tmp_path / "config.json").write_text(json.dumps(config))
    model = load_model(tmp_path, sequence=8, batch=2)
    assert model.options["weights"] == weights
    assert [tuple(ids.shape) for ids in model.flat_inputs()] == [(2, 8), (2, 8)]
    assert not torch.equal(*model.flat_inputs())
    assert model.call().logits.shape == (2, 8, 200)
    named = load_model(tmp_path, step="decode", sequence=8, tokens=3)
    assert (named.kind, named.sequence, named.units) == ("decode", 8, 3)
    step = decode(tmp_path, model.args[0], tokens=3)
    assert step.inputs[0].shape == (2, 1)


def test_a_folder_whose_encoder_reads_sound_says_what_to_do(tmp_path: Path) -> None:
    with quiet_transformers() as transformers:
        config = transformers.WhisperConfig(
            **{f"{part}_layers": 1 for part in ("encoder", "decoder")},
            **{f"{part}_attention_heads": 4 for part in ("encoder", "decoder")},
            **{"d_model": 32, "vocab_size": 200, "num_mel_bins": 8, "max_source_positions": 10},
            **{"pad_token_id": 0, "bos_token_id": 1, "decoder_start_token_id": 3},
        )
        transformers.WhisperForConditionalGeneration(config).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedError, match="cannot make its inputs: give inputs="):
        load_model(tmp_path)
    assert decode(tmp_path, torch.randn(1, 8, 20), tokens=3).sequence == 10


def test_weights_that_do_not_fit_are_listed(saved: tuple[Path, Any], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(saved[0] / "model.safetensors")
    removed = next(key for key in tensors if key.endswith("h.3.mlp.c_fc.weight"))
    tensors["stranger"] = tensors.pop(removed)
    copy_config(saved[0], tmp_path)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    model, again = (load_model(tmp_path, sequence=8) for _ in range(2))
    # The values that the folder lacks come from the seed too.
    assert torch.equal(model.call().logits, again.call().logits)
    notes = model.warnings
    assert len(notes) == 2
    assert "1 parameters are not in the folder" in notes[0]
    assert removed in notes[0]
    assert "stranger" in notes[1]


def test_folder_prints_nothing(saved: tuple[Path, Any], capfd: pytest.CaptureFixture[str]) -> None:
    load_model(saved[0], sequence=8).call()
    assert capfd.readouterr() == ("", "")


def test_folder_with_damaged_weights_is_named(saved: tuple[Path, Any], tmp_path: Path) -> None:
    copy_config(saved[0], tmp_path)
    write(tmp_path / "model.safetensors", b"damaged")
    with pytest.raises(InvalidArgumentError, match=r"weights in .* cannot be loaded"):
        load_model(tmp_path)


@pytest.mark.parametrize(
    ("changes", "arguments", "error", "message"),
    [
        ({"model_type": "unheard-of"}, {}, UnsupportedError, "unheard-of.*pass it with inputs="),
        ({}, {"tiny": True}, InvalidArgumentError, "tiny is True"),
        ({}, {"sequence": 1025}, InvalidArgumentError, "1025.*at most 1024"),
        ({"n_positions": 64}, {"sequence": 65}, InvalidArgumentError, "65.*at most 64"),
    ],
)
def test_folder_that_cannot_be_used_is_named(
    saved: tuple[Path, Any],
    tmp_path: Path,
    changes: dict[str, Any],
    arguments: dict[str, Any],
    error: type[FtaxError],
    message: str,
) -> None:
    with pytest.raises(error, match=rf"(?s){message}"):
        load_model(copy_config(saved[0], tmp_path, **changes), **arguments)


def test_code_in_a_folder_is_neither_run_nor_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("builtins.input", lambda *prompt: asked.append(prompt) or "yes")
    config = {"model_type": "mine", "auto_map": {"AutoConfig": "mine.MyConfig"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    ran = tmp_path / "ran"
    (tmp_path / "mine.py").write_text(f"open({str(ran)!r}, 'w')")
    with pytest.raises(UnsupportedError, match="pass it with inputs="):
        load_model(tmp_path)
    assert asked == []
    assert not ran.exists()
