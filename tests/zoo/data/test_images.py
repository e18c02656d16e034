"""Images on a device: what augmentation does to them."""

import torch

from acf.zoo.data.images import DeviceImages, ImageSet


def test_training_images_are_shifted_and_mirrored_each_on_its_own():
    ramp = torch.arange(36, dtype=torch.uint8).reshape(1, 6, 6, 1).repeat(32, 1, 1, 1)
    labels = torch.zeros(32, dtype=torch.int64)
    data = DeviceImages(ImageSet("ramp", 2, ramp, labels, ramp, labels), torch.device("cpu"))
    batch, _ = data.train_batch(torch.arange(32), torch.Generator().manual_seed(0))
    assert batch.shape == (32, 1, 6, 6)
    assert len({tuple(image.flatten().tolist()) for image in batch}) > 10
    centres = (batch[:, 0, 2:4, 2:4] * data.deviation + data.mean).round()
    assert centres.min() >= 0
    assert centres.max() <= 35
