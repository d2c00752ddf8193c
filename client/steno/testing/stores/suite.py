"""The clauses as tests of pytest, for the store of `--store`."""

from collections.abc import Callable

import pytest

from steno.testing.stores.clauses import CLAUSES
from steno.testing.stores.plugin import CLAUSE_PROPERTY
from steno.testing.stores.trial import Clause, Trial


@pytest.mark.parametrize("clause", CLAUSES, ids=[clause.id for clause in CLAUSES])
def test_store(
    clause: Clause, store_trial: Trial, record_property: Callable[[str, object], None]
) -> None:
    """The store keeps the promise of the clause."""
    finding = store_trial.run(clause)
    record_property(CLAUSE_PROPERTY, [clause.name, finding.verdict, finding.summary])
    if finding.verdict == "broken":
        repeat = f"repeat with --store-seed={finding.seed} -k {clause.id}"
        pytest.fail(f"{clause.promise}\n{finding}\n{repeat}", pytrace=False)
    elif finding.verdict != "kept":
        pytest.skip(str(finding))
