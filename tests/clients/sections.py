"""One section of checks per program, with the count of its requests by status."""

from recorder import Recorder, table


class Programs:
    """Where the programs find the server, and what they asked it."""

    def __init__(self, check, recorder: Recorder, model: dict):
        self.check, self.recorder = check, recorder
        self.model, self.context = model["id"], model["max_model_len"]
        self.root, self.v1 = recorder.url, f"{recorder.url}/v1"
        self.seen = {}

    def last(self, path: str) -> dict:
        """The body of the newest request for `path`."""
        return self.recorder.since(0, path)[-1].json()

    def run(self, name: str, missing: list[str], section, version):
        """Runs one section, after which nothing may have been refused but what it `expected`."""
        if missing:
            print(f"left out: {name}, since there is no {', '.join(missing)}", flush=True)
            return
        mark, self.expected = self.recorder.mark(), []
        with self.check(f"{name}: came to its end"):
            print(f"  {name} {version()}", flush=True)
            section(self)
        self.seen[name] = self.recorder.since(mark)
        with self.check(f"{name}: something was asked, and nothing was refused"):
            assert self.seen[name], "no request"
            refused = [one for one in self.recorder.refused(mark) if one not in self.expected]
            assert not refused, "\n".join(map(str, refused))

    def expect_refused(self, mark: int, status: int) -> list:
        """The refusals since `mark`, which must be there and of one status."""
        refused = self.recorder.refused(mark)
        assert refused and all(one.status == status for one in refused), list(map(str, refused))
        self.expected += refused
        return refused

    def print_table(self):
        print(table(self.seen), flush=True)
