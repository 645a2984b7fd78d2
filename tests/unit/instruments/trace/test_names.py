"""Kernel names: what is kept of them, and that no name is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ftax.instruments.trace import names
from ftax.instruments.trace.names import demangle, shorten, shorten_all

ADD = "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIN3c104HalfEEESt5arrayIPcLm3EEEEviT0_T1_"  # noqa: E501


def test_a_mangled_name_is_demangled():
    assert demangle(ADD).startswith(
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>"
    )


@pytest.mark.parametrize("name", ["triton_poi_fused_add_0", "_Z", "_Znot a name", ""])
def test_what_cannot_be_demangled_stays_as_it_is(name):
    assert demangle(name) == name


def test_without_a_demangler_names_stay_mangled(monkeypatch):
    monkeypatch.setattr(names, "_load_demangler", lambda: None)
    demangle.cache_clear()
    try:
        assert demangle(ADD) == ADD
    finally:
        demangle.cache_clear()


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (ADD, "vectorized_elementwise_kernel<CUDAFunctor_add>"),
        # A lambda is named after the function that it is written in.
        (
            "void at::native::vectorized_elementwise_kernel<4, "
            "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::"
            "{lambda()#2}::operator()() const::{lambda(c10::Half)#1}, std::array<char*, 2ul> >(i)",
            "vectorized_elementwise_kernel<GeluCUDAKernelImpl>",
        ),
        # Wrappers around the functor are passed through.
        (
            "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
            "at::native::BinaryFunctor<c10::Half, c10::Half, c10::Half, "
            "at::native::binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&)::"
            "{lambda(int)#1}>(int)",
            "elementwise_kernel<MulFunctor>",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::Half, "
            "at::native::func_wrapper_t<c10::Half, at::native::sum_functor<c10::Half, float>::"
            "operator()(at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int, 4> >(int)",
            "reduce_kernel<sum_functor>",
        ),
        (
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::Half, "
            "float, false>(int, float, c10::Half const*)",
            "vectorized_layer_norm_kernel",
        ),
        # Libraries: the namespace goes, what tells two of their kernels apart stays.
        (
            "void cutlass::Kernel2<"
            "cutlass_80_tensorop_f16_s16816gemm_relu_f16_64x64_32x6_tn_align8>(cutlass_80_tensorop_f16_s16816gemm_relu_f16_64x64_32x6_tn_align8::Params)",
            "cutlass_80_tensorop_f16_s16816gemm_relu_f16_64x64_32x6_tn_align8",
        ),
        (
            "void cublasLt::splitKreduce_kernel<32, 16, int, float, __half, true>(float const*)",
            "splitKreduce_kernel",
        ),
        (
            "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, "
            "(cudnnKernelDataType_t)0>(__half const*, __half*)",
            "nchwToNhwcKernel",
        ),
        ("nvjet_hsh_64x32_64x10_1x1_v_bz_TNT", "nvjet_hsh_64x32_64x10_1x1_v_bz_TNT"),
        ("plain(int) [clone .kd]", "plain"),
    ],
)
def test_a_short_name_says_what_is_computed(name, short):
    assert shorten(name) == short


@given(st.text(alphabet="ab<>(){}[],: *&1_", min_size=1))
def test_any_name_has_a_short_one(name):
    assert shorten(name)


def test_names_that_would_be_equal_are_told_apart():
    one, other, third = "f<1>(int)", "f<2>(int)", "g(int)"
    short = shorten_all([one, other, third])
    assert short[third] == "g"
    assert short[one] != short[other]
    assert short[one].startswith("f~") and short[other].startswith("f~")
