"""Why a rank ended, as a record says it."""

import pytest
from ranks import choose_reason


@pytest.mark.parametrize(
    ("errors", "reason"),
    [
        ("start\nDistBackendError: reset\nbye", "DistBackendError: reset"),
        ("a timeout\nframe #0: c10::Error() (in /some/lib/libc10.so)", "a timeout"),
        ("Error in /some/folder/net.py, line 3", "Error in net.py, line 3"),
        ("RuntimeError: (/some/lib/libc10.so)", "RuntimeError: (libc10.so)"),
        ("", ""),
    ],
)
def test_a_reason_is_no_frame_of_cpp_and_names_no_folder(errors: str, reason: str) -> None:
    assert choose_reason(errors) == reason
