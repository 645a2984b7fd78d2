"""Whether two runtimes computed the same thing.

The norm of the difference over the norm of the reference is compared with a tolerance that depends
on the dtype; NaNs and infinities must be in the same places. "Bitwise" is said only of equal bytes,
so -0.0 and 0.0 differ while two NaNs of the same payload do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ftax.errors import tell_in_full
from ftax.steps.tensors import same_bytes
from ftax.timing.checks import Equality

# Relative norm of the difference that another order of summation may cause.
TOLERANCE = {
    torch.float32: 1e-4,
    torch.float64: 1e-10,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
    torch.complex64: 1e-4,
    torch.complex128: 1e-10,
}
_WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes
_SPREADS = 2.0  # of what differs by chance, so much more may
_TF32_TOLERANCE = 5e-3  # fp32 on a GPU where torch allows TF32, which has the mantissa of fp16


def compare_outputs(reference: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> Equality:
    """Compare outputs of one runtime with the reference, output by output, in order."""
    tolerance = max(map(_find_tolerance, reference), default=0.0)
    problem = _find_mismatch(reference, outputs)
    reference, outputs = _split_nested(reference), _split_nested(outputs)
    problem = problem or _find_mismatch(reference, outputs)
    has_nan = any(bool(torch.isnan(t).any()) for t in reference if t.is_floating_point())
    if problem is not None:
        return replace(fail_equality(problem, tolerance), has_nan=has_nan)
    pairs = list(zip(reference, outputs, strict=True))
    bitwise = all(same_bytes(a, b) for a, b in pairs)
    difference = 0.0 if bitwise else max(_difference(a, b) for a, b in pairs)
    within = difference <= tolerance
    return Equality(
        bitwise=bitwise,
        within_tolerance=within,
        difference=difference,
        tolerance=tolerance,
        problem=None if within else _say_difference(difference, tolerance, pairs),
        has_nan=has_nan,
    )


def _say_difference(
    difference: float, tolerance: float, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]
) -> str:
    if math.isfinite(difference):
        return f"outputs differ by {difference:.1e} (limit {tolerance:.0e})"
    apart = [(a, b) for a, b in pairs if math.isinf(_difference(a, b))]
    others = sum(int(_find_other_bits(_densify(a), _densify(b)).sum()) for a, b in apart)
    return f"outputs differ in {others:,} of {sum(a.numel() for a, _ in apart):,} numbers"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spread:
    """How runs of one call differ at one of its outputs: at which elements, in any bit, and how far
    apart, by the norm; whole numbers by any distance."""

    differs: torch.Tensor
    most: float

    def both(self, other: Spread) -> Spread:
        """Where two kinds of runs differ, each from its like."""
        return Spread(differs=self.differs & other.differs, most=max(self.most, other.most))


def measure_spread(
    first: Sequence[torch.Tensor], others: Iterable[Sequence[torch.Tensor]]
) -> dict[int, Spread]:
    """The outputs at which other runs differ from the first, by place: kernels that sum in another
    order each time may choose another token, and a gradient that is 0 but for rounding is only
    that."""
    differs = {
        place: torch.zeros_like(item, dtype=torch.bool)
        for place, item in enumerate(first)
        if item.layout == torch.strided and not item.is_nested
    }
    most = dict.fromkeys(differs, 0.0)
    for run in others:
        for place in differs:
            differs[place] |= _find_other_bits(first[place], run[place])
            most[place] = max(most[place], _distance(first[place], run[place]))
    return {
        place: Spread(differs=mask, most=most[place])
        for place, mask in differs.items()
        if mask.any()
    }


def allow_unsteady(
    found: Equality,
    reference: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    spread: Mapping[int, Spread],
) -> Equality:
    """``found``, of these outputs, where they differ at elements only that are not the same twice
    in eager either, and hardly by more than they differ there."""
    if not spread or len(outputs) != len(reference):
        return found
    for place, (a, b) in enumerate(zip(reference, outputs, strict=True)):
        if compare_outputs([a], [b]).within_tolerance:
            continue
        if place not in spread or a.shape != b.shape:
            return found
        own = spread[place]
        steady = compare_outputs([a[~own.differs]], [b[~own.differs]])
        far = _distance(a[own.differs], b[own.differs])
        if not steady.within_tolerance or far > _SPREADS * own.most:
            return found
    return replace(found, within_tolerance=True, problem=None, repeats=False)


def find_other_bits(
    reference: Sequence[torch.Tensor],
    outputs: Sequence[torch.Tensor],
    spread: Mapping[int, Spread],
) -> bool:
    """Whether outputs have other bits anywhere but where ``spread`` says that runs differ."""
    for place, (a, b) in enumerate(zip(reference, outputs, strict=True)):
        if same_bytes(a, b):
            continue
        if place not in spread or a.shape != b.shape:
            return True
        if bool((_find_other_bits(a, b) & ~spread[place].differs).any()):
            return True
    return False


def _find_other_bits(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Elements that are not the same bytes; all of them for tensors that are not alike."""
    if a.shape != b.shape or a.dtype != b.dtype or a.layout != b.layout:
        return torch.ones_like(a, dtype=torch.bool)
    if a.is_complex():
        pair = (torch.view_as_real(item.resolve_conj()) for item in (a, b))
        return _find_other_bits(*pair).any(-1)
    if a.is_floating_point():
        whole = _WHOLE[a.element_size()]
        a, b = (item.detach().contiguous().view(whole) for item in (a, b))
    return a != b.to(a.device)


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """The norm of the difference; of whole numbers 0 or infinite."""
    if a.shape != b.shape:
        return math.inf
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    if not a.is_floating_point():
        return 0.0 if torch.equal(a, b.to(a.device)) else math.inf
    x, y = a.detach().double(), b.detach().to(a.device).double()
    same = (x == y) | (x.isnan() & y.isnan())  # two infinities are no distance apart
    distance = float(torch.linalg.vector_norm(torch.where(same, 0.0, x - y)))
    return math.inf if math.isnan(distance) else distance


def fail_equality(
    problem: str, tolerance: float | None, error: BaseException | None = None
) -> Equality:
    """Outputs that there are none of, or none that could be compared; ``error`` is why."""
    return Equality(
        bitwise=False,
        within_tolerance=False,
        difference=math.inf,
        tolerance=tolerance,
        problem=problem,
        has_nan=False,
        error="" if error is None else tell_in_full(error),
    )


def _find_tolerance(tensor: torch.Tensor) -> float:
    on_gpu = tensor.dtype == torch.float32 and tensor.is_cuda
    if on_gpu and (allows_tf32_products() or allows_tf32_convolutions()):
        return _TF32_TOLERANCE
    return TOLERANCE.get(tensor.dtype, 0.0)


def _find_mismatch(
    reference: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> str | None:
    if len(reference) != len(outputs):
        return f"{len(outputs)} outputs instead of {len(reference)}"
    for place, (a, b) in enumerate(zip(reference, outputs, strict=True)):
        if a.layout != b.layout or a.is_nested != b.is_nested:
            return f"output {place} has another layout: {b.layout} instead of {a.layout}"
        if not a.is_nested and a.shape != b.shape:
            return f"output {place} has shape {tuple(b.shape)} instead of {tuple(a.shape)}"
        if a.dtype != b.dtype:
            return f"output {place} has dtype {b.dtype} instead of {a.dtype}"
    return None


def _split_nested(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The parts of nested tensors, in place of them."""
    return [
        part for tensor in tensors for part in (tensor.unbind() if tensor.is_nested else (tensor,))
    ]


def _difference(a: torch.Tensor, b: torch.Tensor) -> float:
    if a.numel() == 0:
        return 0.0
    a, b = _densify(a), _densify(b)
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    if not a.is_floating_point():
        return 0.0 if torch.equal(a, b.to(a.device)) else math.inf
    x, y = a.detach().double(), b.detach().to(a.device).double()
    if not torch.equal(torch.isnan(x), torch.isnan(y)):
        return math.inf
    infinite = x.isinf() | y.isinf()
    if not torch.equal(x[infinite], y[infinite]):
        return math.inf
    x, y = (t.nan_to_num(posinf=0.0, neginf=0.0) for t in (x, y))  # they would hide all else
    scale = float(torch.linalg.vector_norm(x))
    distance = float(torch.linalg.vector_norm(x - y))
    return distance / scale if scale > 0 else (0.0 if distance == 0 else math.inf)


def _densify(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.layout == torch.strided else tensor.to_dense()


def allows_tf32_products() -> bool:
    """Whether TF32 is allowed in matrix products (cuBLAS)."""
    backends: Any = torch.backends  # parts of which torch leaves untyped
    matmul = backends.cuda.matmul
    return _read_tf32(lambda: matmul.allow_tf32, lambda: matmul.fp32_precision)


def allows_tf32_convolutions() -> bool:
    """Whether TF32 is allowed in convolutions (cuDNN)."""
    cudnn: Any = torch.backends.cudnn
    return _read_tf32(lambda: cudnn.allow_tf32, lambda: cudnn.conv.fp32_precision)


def _read_tf32(read_old: Callable[[], bool], read_new: Callable[[], str]) -> bool:
    # Reading a switch by its old name raises once its new name was used.
    try:
        return bool(read_old())
    except RuntimeError:
        return read_new() == "tf32"
