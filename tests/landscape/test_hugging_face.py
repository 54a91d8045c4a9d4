"""Small models of ``transformers`` with random weights: BERT on dictionaries, ViT on pairs and dictionaries."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from analysis import Hessian, largest_eigenpairs, measure_surface
from analysis.hessian.layers import layer_eigenvalues
from analysis.hessian.sharpness import sam_sharpness
from landscape import Landscape, Samples
from tests.landscape.test_one_door import check

transformers = pytest.importorskip("transformers", reason="the test extra transformers is not installed")

N, CLASSES = 12, 3
LABELS = torch.arange(N) % CLASSES


def bert(kind: str = "BertForSequenceClassification") -> nn.Module:
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=11, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
        max_position_embeddings=6, num_labels=CLASSES,
    )  # fmt: skip
    return getattr(transformers, kind)(config).eval()


def vit() -> nn.Module:
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        image_size=8, patch_size=4, num_channels=3, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=12, num_labels=CLASSES,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config).eval()


def texts() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(1, 11, (N, 6), generator=draw)
    mask = (torch.arange(6) < torch.randint(2, 7, (N, 1), generator=draw)).long()
    return {"input_ids": ids * mask, "attention_mask": mask, "labels": LABELS}


def pictures() -> torch.Tensor:
    return torch.randn(N, 3, 8, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def parts(batch, size=5):
    return [{name: tensor[i : i + size] for name, tensor in batch.items()} for i in range(0, N, size)]


def around(model, data, loss=None, **options):
    return Landscape(model, data, loss, device="cpu", dtype="float64", **options)


def test_bert_on_its_dictionaries_is_the_mean_of_its_own_loss():
    model = bert()
    check(around(model, parts(texts())), model, lambda net: net(**texts()).loss)


def test_bert_from_a_loader_that_shuffles_and_in_its_own_batch_encoding():
    wanted = bert().double()(**texts()).loss.item()
    rows = [{name: tensor[i] for name, tensor in texts().items()} for i in range(N)]
    encoded = transformers.BatchEncoding(texts())
    for data in (DataLoader(rows, batch_size=5, shuffle=True), encoded, [encoded]):
        assert around(bert(), data).value() == pytest.approx(wanted, rel=1e-10)


def test_bert_on_plain_tokens_has_an_accuracy():
    model, ids = bert(), texts()["input_ids"]
    there = around(model, (ids, LABELS), batch_size=5)
    check(there, model, lambda net: F.cross_entropy(net(ids).logits, LABELS))
    assert there.accuracy() == (model(ids).logits.argmax(1) == LABELS).double().mean().item()


def test_masked_language_modelling_weighs_by_its_labels():
    """Tied embeddings, a label for each token; 12 batches of one text each have different numbers of labels."""
    model, batch = bert("BertForMaskedLM"), texts()
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
    batch = {**batch, "labels": labels}
    each = Landscape.of(
        model, parts(batch, 1), lambda net, b: net(**b).loss, size=lambda b: int((b["labels"] != -100).sum()),
        device="cpu", dtype="float64",
    )  # fmt: skip
    check(each, model, lambda net: net(**batch).loss)


def test_vit_on_pairs_and_on_dictionaries():
    model, x = vit(), pictures()
    pairs, dictionaries = (
        around(model, (x, LABELS), batch_size=5),
        around(model, parts({"pixel_values": x, "labels": LABELS})),
    )
    assert isinstance(pairs.data, Samples)
    check(pairs, model, lambda net: F.cross_entropy(net(x).logits, LABELS))
    check(dictionaries, model, lambda net: F.cross_entropy(net(x).logits, LABELS))
    assert pairs.accuracy() == (model(x).logits.argmax(1) == LABELS).double().mean().item()


@pytest.mark.parametrize("name", ["bert", "vit"])
def test_spectrum_layers_sharpness_and_surface(name):
    data = parts(texts()) if name == "bert" else parts({"pixel_values": pictures(), "labels": LABELS})
    there = around(bert() if name == "bert" else vit(), data)
    top = largest_eigenpairs(Hessian(there), 1)
    v = top.vectors[0]
    step = 1e-5
    rises = [there.gradient(there.weights + s * step * v) for s in (1, -1)]
    assert top.values[0] == pytest.approx(((rises[0] - rises[1]) @ v).item() / (2 * step), rel=1e-3)
    blocks = layer_eigenvalues(there, layers=["classifier"])
    assert 0 < blocks.values[0, 0] <= top.values[0] * (1 + 1e-3)  # a principal block's is no larger
    assert sam_sharpness(there, 0.01).value > 0
    surface = measure_surface(there, points=3, exact=True, workers=1)
    assert surface.loss[1, 1] == pytest.approx(there.value(), rel=1e-10)
