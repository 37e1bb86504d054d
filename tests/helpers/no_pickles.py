"""For scripts that torchrun runs: nobody may send pickles."""

import torch


def forbid_pickles() -> None:
    """Torch's collectives of objects end the run."""
    for name in dir(torch.distributed):
        if "_object" in name:
            setattr(torch.distributed, name, None)
    torch.distributed.distributed_c10d._object_to_tensor = None  # type: ignore[assignment]
    torch.distributed.distributed_c10d._tensor_to_object = None  # type: ignore[assignment]
