"""Boxes of pixels: the shape of the part of an image that one program of a convolution reads."""

from acf.ops.triton.pixels import pixel_box


def test_a_pixel_box_covers_common_images_without_waste() -> None:
    assert pixel_box(128, 256, (28, 28)) == (8, 4, 4)
    assert pixel_box(64, 64, (56, 56)) == (1, 8, 8)
