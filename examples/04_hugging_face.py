"""Train a small GPT-2 whose MLPs are block-sparse with the Hugging Face trainer.

    python examples/04_hugging_face.py

Needs transformers and accelerate (the extra ``adapters``); the data are made up, nothing is downloaded.
"""

import sys
import tempfile
from importlib.util import find_spec

import torch

import acf

STEPS = 20


def main() -> None:
    """Sparsify, train with moving blocks, show what is left."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_embd=64, n_layer=2, n_head=4, vocab_size=128, n_positions=32))
    acf.sparsify_(model, acf.BlockSparsity(sparsity=0.75, block=16), filter_fn=lambda layer, name: ".mlp." in name)
    data = [{"input_ids": row, "labels": row} for row in torch.randint(0, 128, (64, 16))]
    callback = acf.hugging_face_callback(acf.BlockDST(total_steps=STEPS, every=5), on_move=acf.print_figures())
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=STEPS, per_device_train_batch_size=8, report_to=[], use_cpu=True, disable_tqdm=True
        )
        Trainer(model, arguments, train_dataset=data, callbacks=[callback]).train()
    print(f"{acf.weight_sparsity(model, sparse_layers_only=True):.0%} of the sparse layers' weights are absent")


if __name__ == "__main__":
    missing = [name for name in ("transformers", "accelerate") if find_spec(name) is None]
    if missing:
        print(f"skipped: {' and '.join(missing)} not installed; pip install 'adaptive-compute-fabric[adapters]'")
        sys.exit(0)
    main()
