"""Diffusers' group offloading, unmodified: the weights of a UNet come to the device layer by layer,
on a stream of their own, while the layer before computes.
"""

import torch
from diffusers import UNet2DModel
from diffusers.hooks import apply_group_offloading

STEPS = (10, 5, 1)


def model() -> UNet2DModel:
    """Random weights, always the same."""
    torch.manual_seed(0)
    return UNet2DModel(
        sample_size=8, in_channels=1, out_channels=1, layers_per_block=1,
        block_out_channels=(8, 8), norm_num_groups=4,
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
    ).eval()  # fmt: skip


def denoised(unet: UNet2DModel) -> torch.Tensor:
    x = torch.linspace(-1, 1, 64).reshape(1, 1, 8, 8).to("cuda")
    with torch.no_grad():
        for step in STEPS:
            x = unet(x, step).sample
    return x.cpu()


def resident() -> torch.Tensor:
    """The reference: all weights stay on the device."""
    return denoised(model().to("cuda"))


def _offloaded(**options: object) -> torch.Tensor:
    unet = model()
    apply_group_offloading(
        unet, onload_device=torch.device("cuda"), offload_device=torch.device("cpu"),
        use_stream=True, **options,
    )  # fmt: skip
    return denoised(unet)


def leaf() -> torch.Tensor:
    return _offloaded(offload_type="leaf_level")


def leaf_recorded() -> torch.Tensor:
    """The allocator, not the host, waits for the uses of the weights."""
    return _offloaded(offload_type="leaf_level", record_stream=True)


def block() -> torch.Tensor:
    return _offloaded(offload_type="block_level", num_blocks_per_group=1)
