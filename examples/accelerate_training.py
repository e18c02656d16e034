"""Train a block-sparse model with Hugging Face Accelerate while its blocks move.

    accelerate launch examples/accelerate_training.py

Sparsify the model before `prepare`, attach after it: to the optimizer inside Accelerate's wrapper.
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import acf

STEPS = 200


def main() -> None:
    accelerator = Accelerator()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    acf.sparsify_(model, acf.BlockSparsity(sparsity=0.75, block=16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    x = torch.randn(3200, 64)
    batches = DataLoader(TensorDataset(x, x.flip(1)), batch_size=16, shuffle=True)
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
    topology = acf.attach(model, optimizer.optimizer, acf.BlockDST(total_steps=STEPS, every=20))

    for _, (inputs, targets) in zip(range(STEPS), batches, strict=False):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()

    for layer in topology.figures():
        accelerator.print(
            f"{layer.layer}: {layer.density:.0%} of the blocks present, {layer.explored:.0%} ever explored"
        )
    accelerator.print(f"loss {loss.item():.4f} after {topology.step} steps")


if __name__ == "__main__":
    main()
