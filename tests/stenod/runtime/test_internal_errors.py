"""Internal errors, as the log names them."""

from stenod.runtime.internal_errors import fault_of

CANARY = "XYZZY-plugh"


def test_internal_error_is_logged_by_type_and_place_without_its_text() -> None:
    try:
        raise ValueError(f"no record: {CANARY}")
    except ValueError as error:
        fault = fault_of(error)
    assert fault.startswith("ValueError at test_internal_errors.py:")
    assert CANARY not in fault
