"""Public libraries for PopTorch, unchanged, where they are installed (docs/programs.md)."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

LIGHTNING = """
import lightning
import torch
from lightning_graphcore import IPUAccelerator, IPUStrategy
from lightning_graphcore.precision import IPUPrecision

torch.manual_seed(0)
rows = torch.utils.data.TensorDataset(torch.randn(40, 8), torch.randn(40, 2))


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)

    def training_step(self, batch, _):
        inputs, targets = batch
        return torch.nn.functional.mse_loss(self.layer(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


model, expected = Regression(), Regression()
expected.load_state_dict(model.state_dict())
trainer = lightning.Trainer(
    strategy=IPUStrategy(
        accelerator=IPUAccelerator(), precision_plugin=IPUPrecision("32-true")
    ),
    devices=1,
    max_steps=10,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(model, torch.utils.data.DataLoader(rows, batch_size=4))
optimizer = expected.configure_optimizers()
for batch in torch.utils.data.DataLoader(rows, batch_size=4):
    optimizer.zero_grad()
    expected.training_step(batch, 0).backward()
    optimizer.step()
torch.testing.assert_close(model.layer.weight, expected.layer.weight, rtol=1e-5, atol=1e-5)
print("equal after", trainer.global_step, "steps")
"""

OPTIMUM = """
import poptorch
import torch
import transformers
from optimum.graphcore import IPUConfig
from optimum.graphcore.modeling_utils import to_pipelined

torch.manual_seed(0)
config = transformers.BertConfig(
    vocab_size=100, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=32, max_position_embeddings=16, num_labels=3,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)
model = transformers.BertForSequenceClassification(config).train()
batch = {
    "input_ids": torch.randint(5, 100, (8, 16)),
    "attention_mask": torch.ones(8, 16, dtype=torch.int64),
    "labels": torch.randint(0, 3, (8,)),
}
expected = model(**batch).loss
ipu_config = IPUConfig(layers_per_ipu=[1, 1], ipus_per_replica=2, gradient_accumulation_steps=4)
pipelined = to_pipelined(model, ipu_config, force=False).parallelize()
options = ipu_config.to_options()
options.outputMode(poptorch.OutputMode.All)
optimizer = poptorch.optim.AdamW(pipelined.parameters(), lr=1e-2)
training = poptorch.trainingModel(pipelined, options, optimizer)
losses = [training(**batch)["loss"].mean() for _ in range(10)]
torch.testing.assert_close(losses[0], expected.detach(), rtol=1e-3, atol=1e-3)
assert losses[-1] < 0.5 * losses[0], losses
print("equal after", len(losses), "steps")
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("packages", "program"),
    [
        pytest.param(["lightning_graphcore", "lightning"], LIGHTNING, id="lightning"),
        pytest.param(["optimum.graphcore", "transformers"], OPTIMUM, id="optimum"),
    ],
)
def test_ten_steps_of_a_library(packages: list[str], program: str, tmp_path: Path) -> None:
    for package in packages:
        if not _is_installed(package):
            pytest.skip(f"the package {package} is not installed")
    script = tmp_path / "program.py"
    script.write_text(program, encoding="utf-8")
    command = [sys.executable, "-m", "ipujax.poptorch", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert "equal after 10 steps" in done.stdout, done.stderr[-3000:]


def _is_installed(package: str) -> bool:
    parent, _, _ = package.rpartition(".")
    return bool((not parent or _is_installed(parent)) and importlib.util.find_spec(package))
