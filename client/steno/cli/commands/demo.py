"""The subcommand `demo`: the main job done before one's eyes, and proved from the file."""

import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

from steno._connect.lock_holder import is_free
from steno.cli.connection import prepared_root, refuse_endpoint, root_of
from steno.cli.demo.progress import Progress
from steno.cli.demo.proof import Proof, changes_of_writer, prove
from steno.cli.demo.scenario import Evidence, run
from steno.cli.exits import Exit
from steno.cli.render.output import Output
from steno.cli.render.wording import count, number
from steno_protocol.errors import Held


def demo(options: Namespace, output: Output) -> int:
    """Run the demo; fails unless every proof holds."""
    root = _root(options)
    progress = Progress(output, options.agents, options.turns)
    try:
        evidence = run(root, options.agents, options.turns, progress.watch)
    finally:
        progress.end()
    data = evidence.file.read_bytes()
    proofs = prove(data, evidence.acked, evidence.seen)
    if output.as_json:
        output.document(_document(options, evidence, proofs))
    else:
        _print(output, options, evidence, proofs, changes_of_writer(data))
    return Exit.DONE if all(proof.holds for proof in proofs) else Exit.FAILED


def _root(options: Namespace) -> Path:
    refuse_endpoint(options)
    if options.root is None:
        return Path(tempfile.mkdtemp(prefix="steno-demo-")).resolve()
    prepared_root(options)
    root = root_of(options)
    if not is_free(root):
        raise Held(
            f"a daemon runs on {root}, and the demo would kill it: stop it with `steno stop`, or"
            " leave --root out"
        )
    return root


def _print(
    output: Output, options: Namespace, evidence: Evidence, proofs: list[Proof], changes: int
) -> None:
    records = sum(len(each.sent) for each in evidence.acked)
    again = sum(each.duplicate for each in evidence.acked)
    output.write(
        f"{options.agents} {'process' if options.agents == 1 else 'processes'} wrote"
        f" {number(records)} records into one session at once"
        f" (the writer changes {count(changes, 'time')})."
    )
    output.write(
        f"The daemon {evidence.killed_pid} was killed in the middle; {evidence.next_pid} answered"
        f" {evidence.away_s:.2f} s later."
    )
    if again:
        output.write(
            f"{count(again, 'command')} had been written but not answered when it died: sent again,"
            " answered, and not written again."
        )
    output.write()
    for proof in proofs:
        mark = output.style("✓", "green") if proof.holds else output.style("✗", "bold", "red")
        output.write(f"{mark} {proof.claim}")
        if not proof.holds:
            output.write(f"  {output.style(proof.detail, 'red')}")
    output.write()
    output.write(f"file: {evidence.file}")
    output.write(f"look: steno --root {evidence.root} show {evidence.session}")


def _document(options: Namespace, evidence: Evidence, proofs: list[Proof]) -> dict[str, Any]:
    return {
        "proved": all(proof.holds for proof in proofs),
        "proofs": [
            {"claim": proof.claim, "holds": proof.holds, "detail": proof.detail} for proof in proofs
        ],
        "root": str(evidence.root),
        "session": evidence.session,
        "file": str(evidence.file),
        "agents": options.agents,
        "records": sum(len(each.sent) for each in evidence.acked),
        "repeated": sum(each.duplicate for each in evidence.acked),
        "killed_pid": evidence.killed_pid,
        "next_pid": evidence.next_pid,
        "away_s": round(evidence.away_s, 3),
    }
