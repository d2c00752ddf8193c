"""What the demo says while it runs: one updating line on a terminal, else a few lines."""

from steno.cli.demo.scenario import Evidence
from steno.cli.render.output import Output
from steno.cli.render.wording import number

_BAR_CHARS = 24
_QUARTERS = 4


class Progress:
    """Prints the phases of a demo on stderr."""

    def __init__(self, output: Output, agents: int, turns: int) -> None:
        self._output = output
        self._agents = agents
        self._total = agents * turns
        self._shown = 0
        self._is_updating = False

    def watch(self, phase: str, evidence: Evidence) -> None:
        """Take in what happened."""
        match phase:
            case "agents":
                self._say(f"a daemon runs on {evidence.root}")
                self._say(f"starting {self._agents} agents and a follower")
            case "killed":
                self._say(f"killed the daemon {evidence.killed_pid} with SIGKILL")
            case "back":
                away = f"{evidence.away_s:.2f} s later"
                self._say(f"an agent started a new one, {evidence.next_pid}: it answers {away}")
            case _:
                self._count(len(evidence.acked))

    def end(self) -> None:
        """Nothing more happens."""
        if self._is_updating:
            self._output.update("")

    def _say(self, text: str) -> None:
        self.end()
        self._output.say(text)

    def _count(self, done: int) -> None:
        step = max(1, self._total // (100 if self._output.talks_to_terminal else _QUARTERS))
        if done // step == self._shown // step and done != self._total:
            return
        self._shown = done
        text = f"{number(done)} of {number(self._total)} turns acknowledged"
        if not self._output.talks_to_terminal:
            self._output.say(text)
            return
        filled = _BAR_CHARS * done // self._total
        self._is_updating = True
        self._output.update(f"{'█' * filled}{'░' * (_BAR_CHARS - filled)} {text}")
