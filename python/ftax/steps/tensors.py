"""Tensors as memory: whether two hold the same bits, and writing one's values into another's.

A tensor that was expanded is written through the part of it that has memory of its own, since torch
refuses to write where several elements share one place.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


def same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype hold the same bits, NaNs included."""
    if a.layout != b.layout or a.is_nested != b.is_nested:
        return False
    if a.is_nested or a.layout != torch.strided:
        left, right = _list_parts(a), _list_parts(b)
        if len(left) != len(right):
            return False
        parts = zip(left, right, strict=True)
        return all(x.shape == y.shape and same_bytes(x, y) for x, y in parts)
    if a.is_quantized:
        return bool(torch.equal(a, b))
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    flat_a, flat_b = (t.detach().resolve_neg().contiguous().reshape(-1) for t in (a, b))
    if flat_a.device != flat_b.device:
        flat_b = flat_b.to(flat_a.device)
    return bool(torch.equal(flat_a.view(torch.uint8), flat_b.view(torch.uint8)))


def find_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor that have memory of their own: itself, unless it was expanded."""
    if tensor.layout != torch.strided or tensor.is_nested:
        return tensor
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def make_like(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in memory of its own, laid out the same way; autograd does not follow it."""
    own = find_memory(tensor)
    with torch.inference_mode(False), torch.no_grad():
        made = torch.empty_strided(own.size(), own.stride(), dtype=own.dtype, device=own.device)
        return made.copy_(own.detach()).expand(tensor.size())


def copy_into(targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
    """The values of ``sources`` into the memory of ``targets``, of the same shapes."""
    with torch.inference_mode():
        for target, source in zip(targets, sources, strict=True):
            if target.is_nested:
                copy_into(target.unbind(), source.unbind())
                continue
            memory = find_memory(target)
            values = source
            for dim, size in enumerate(memory.shape):
                if source.layout == torch.strided and size != source.shape[dim]:
                    values = values.narrow(dim, 0, 1)
            memory.copy_(values)


def list_dense(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The strided tensors in whose memory a tensor lies: a sparse one has several; none for
    tensors of other kinds."""
    if tensor.is_nested or tensor.is_meta:
        return ()
    if tensor.layout == torch.strided:
        return (tensor,)
    if tensor.layout == torch.sparse_coo:
        # Not indices() and values(), which need version counters: inference tensors have none.
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return ()


def _list_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The dense tensors that a sparse or nested one is made of."""
    if tensor.is_nested:
        return tuple(tensor.unbind())
    if tensor.layout == torch.sparse_coo:
        with torch.inference_mode():  # one that was made in it cannot be sorted outside
            tensor = tensor.coalesce()
    return list_dense(tensor) or (tensor.to_dense(),)
